#include "c4d_master/job_view.h"

#include <algorithm>
#include <set>
#include <utility>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health/event.h"
#include "c4d_master/host_update.h"
#include "c4d_master/telemetry_decode.h"
#include "service/log.h"

namespace c4::c4d {
namespace {

constexpr size_t kFormerEpochs = 16;
// A former agent that goes on reporting after the later one has been silent for so long is the real one: what
// came in between was a stray process, or forged.
constexpr int64_t kTakeBackNs = 5 * kSecondNs;
// A host without processes of this job is forgotten after so long a silence.
constexpr int64_t kForgetDrainedNs = 600 * kSecondNs;
// And one whose ranks live on elsewhere.
constexpr int64_t kForgetSilentNs = 600 * kSecondNs;

bool IsDead(const Health& health) {
  return health.state == ProcessState::kGone || health.state == ProcessState::kZombie;
}

// An agent that starts anew finds the dead of long ago: to it they have just ended, and it did not see how.
void KeepEnd(const Health& before, Health* now) {
  if (!IsDead(before) || !IsDead(*now) || now->exit_at_ns != kNever) return;
  now->state_since_at_ns = std::min(now->state_since_at_ns, before.state_since_at_ns);
  now->exit_at_ns = before.exit_at_ns;
  if (!now->exit_status.has_value()) now->exit_status = before.exit_status;
}

// The kernel's log names whom it killed for want of memory. Batches repeat what was said lately.
void TakeMemoryKills(const v1::TelemetryBatch& batch, int64_t as_of_ns, Host* host) {
  for (const v1::HardwareEvent& event : batch.hardware()) {
    // Of /proc/vmstat alone the number is how many there were.
    if (event.kind() != agent::event_kind::kOutOfMemory || !event.device().starts_with("process ")) continue;
    const auto pid = static_cast<uint32_t>(event.number());
    const int64_t at_ns = as_of_ns - std::clamp<int64_t>(event.age_ns(), 0, batch.monotonic_ns());
    const auto known = std::find_if(
        host->memory_kills.begin(), host->memory_kills.end(),
        [&](const auto& kill) { return kill.first == pid && std::abs(kill.second - at_ns) <= kSecondNs; });
    if (known == host->memory_kills.end()) host->memory_kills.emplace_back(pid, at_ns);
  }
  const size_t size = host->memory_kills.size();
  if (size > kMostMemoryKills) {
    host->memory_kills.erase(
        host->memory_kills.begin(),
        host->memory_kills.begin() + static_cast<std::ptrdiff_t>(size - kMostMemoryKills));
  }
}

}  // namespace

void ClockOffset::Sample(int64_t node_ns, int64_t master_ns) {
  if (node_ns < last_node_ns_) Reset();  // the node came up anew
  last_node_ns_ = node_ns;
  if (window_start_ns_ == kNone) {
    window_start_ns_ = master_ns;
  } else if (master_ns - window_start_ns_ > kWindowNs) {
    previous_ns_ = current_ns_;
    current_ns_ = kNone;
    window_start_ns_ = master_ns;
  }
  current_ns_ = std::min(current_ns_, master_ns - node_ns);
}

void ClockOffset::RoundTrip(int64_t offset_ns, int64_t error_ns) {
  // Both come from outside: no arithmetic before they are known to be small enough for it.
  constexpr int64_t kMost = INT64_MAX / 4;
  const bool sane = error_ns >= 0 && error_ns < kMost && offset_ns > -kMost && offset_ns < kMost;
  // The samples are up to a minute old, in which clocks may drift apart.
  if (sane && offset_ns - error_ns <= most_ns() + kDriftNs) {
    trip_offset_ns_ = offset_ns;
    trip_error_ns_ = error_ns;
  } else {
    trip_error_ns_ = kNone;
  }
}

int64_t ClockOffset::offset_ns() const {
  return trip_error_ns_ == kNone ? most_ns() : trip_offset_ns_;
}

std::optional<int64_t> ClockOffset::error_ns() const {
  return trip_error_ns_ == kNone ? std::nullopt : std::optional<int64_t>(trip_error_ns_);
}

JobView::Taken JobView::Ingest(const v1::TelemetryBatch& batch, int64_t arrival_ns,
                               std::vector<std::string>* faults) {
  if (batch.base() != 0 && !HasBase(batch)) return Taken::kNoBase;
  const auto [it, is_new] = hosts_.try_emplace(batch.host());
  Host& host = it->second;
  AgentSession& session = agent_sessions_[batch.host()];
  if (!is_new && batch.agent_epoch() == host.agent_epoch) {
    if (batch.sequence() <= host.sequence) return Taken::kDuplicate;
  } else if (!is_new) {
    auto& former = session.former_epochs;
    const auto known = std::find_if(former.begin(), former.end(),
                                    [&](const auto& entry) { return entry.first == batch.agent_epoch(); });
    if (known != former.end()) {
      const bool goes_on = batch.sequence() > known->second;
      known->second = std::max(known->second, batch.sequence());
      if (!goes_on || arrival_ns - session.last_arrival_ns < kTakeBackNs) return Taken::kOtherAgent;
      former.erase(known);
    }
    former.emplace_back(host.agent_epoch, host.sequence);
    if (former.size() > kFormerEpochs) former.pop_front();
    // The clock relation stays: a node's clock does not care which agent reads it.
  }
  session.last_arrival_ns = arrival_ns;
  session.clock.Sample(batch.monotonic_ns(), arrival_ns);
  session.clock.RoundTrip(batch.clock().offset_ns(), batch.has_clock() ? batch.clock().error_ns() : -1);
  const int64_t as_of_ns = batch.monotonic_ns() + session.clock.offset_ns();
  const HostUpdate update = batch.base() == 0 ? TakeWhole(batch, arrival_ns, is_new, &host, &session, faults)
                                              : TakeChanges(batch, &host, &session, faults);
  if (update == HostUpdate::kMoved || is_new) ++structure_;
  if (update == HostUpdate::kEndpoints) assembly_.EndpointsChanged();
  host.name = batch.host();
  host.agent_epoch = batch.agent_epoch();
  host.sequence = batch.sequence();
  host.agent_version = CutText(batch.agent_version());
  host.segments_refused = batch.segments_refused();
  host.refusal = CutText(batch.refusal());
  ++host.batches;
  host.batches_dropped = batch.batches_dropped();
  host.clock_error_ns = session.clock.error_ns();
  if (!is_new && as_of_ns - host.as_of_ns > agent_stale_ns_) {
    host.silent_from_ns = host.as_of_ns;
    host.back_at_ns = arrival_ns;
  }
  host.as_of_ns = as_of_ns;
  TakeMemoryKills(batch, as_of_ns, &host);
  ++host.revision;
  return Taken::kNew;
}

HostUpdate JobView::TakeWhole(const v1::TelemetryBatch& batch, int64_t arrival_ns, bool is_new, Host* host,
                              AgentSession* session, std::vector<std::string>* faults) {
  const int64_t offset_ns = session->clock.offset_ns();
  std::vector<Process> processes = DecodeProcesses(batch, offset_ns, faults);
  std::map<ProcessKey, const Process*> known;
  for (const Process& old : host->processes) known[old.key] = &old;
  for (Process& process : processes) {
    const auto old = known.find(process.key);
    process.first_seen_at_ns = old == known.end() ? arrival_ns : old->second->first_seen_at_ns;
    if (old != known.end()) KeepEnd(old->second->health, &process.health);
  }
  const int64_t as_of_ns = batch.monotonic_ns() + offset_ns;
  if (!is_new) fences_.Observe(host->processes, host->as_of_ns, processes, as_of_ns);
  session->places.emplace();
  for (int i = 0; session->places.has_value() && i < batch.processes_size(); ++i) {
    const bool held = processes.size() == static_cast<size_t>(batch.processes_size());
    std::optional<QueuePairPlaces> places;
    if (held) places = PlacesOf(batch.processes(i), processes[static_cast<size_t>(i)]);
    if (places.has_value()) {
      session->places->push_back(*std::move(places));
    } else {
      session->places.reset();
    }
  }
  return Replace(&host->processes, &processes);
}

// All of it is known to fit.
HostUpdate JobView::TakeChanges(const v1::TelemetryBatch& batch, Host* host, AgentSession* session,
                                std::vector<std::string>* faults) {
  const BatchTimes times(batch.monotonic_ns(), session->clock.offset_ns());
  const int64_t as_of_ns = batch.monotonic_ns() + session->clock.offset_ns();
  HostUpdate result = HostUpdate::kInPlace;
  for (int i = 0; i < batch.changes_size(); ++i) {
    const v1::ProcessChanges& changes = batch.changes(i);
    Process& held = host->processes[static_cast<size_t>(i)];
    if (!changes.has_whole()) {
      Apply(changes, times, (*session->places)[static_cast<size_t>(i)], &held);
      continue;
    }
    std::vector<Process> next;
    next.push_back(DecodeProcess(changes.whole(), times, faults));
    next.front().first_seen_at_ns = held.first_seen_at_ns;
    fences_.Observe({held}, host->as_of_ns, next, as_of_ns);
    std::optional<QueuePairPlaces> places = PlacesOf(changes.whole(), next.front());
    if (!places.has_value()) {
      session->places.reset();
    } else if (session->places.has_value()) {
      (*session->places)[static_cast<size_t>(i)] = *std::move(places);
    }
    result = std::max(result, Replace(&held, &next.front()));
  }
  return result;
}

bool JobView::HasBase(const v1::TelemetryBatch& batch) const {
  const auto it = hosts_.find(batch.host());
  if (it == hosts_.end() || batch.agent_epoch() != it->second.agent_epoch) return false;
  if (batch.sequence() <= it->second.sequence) return true;  // a duplicate
  const std::optional<std::vector<QueuePairPlaces>>& places = agent_sessions_.at(batch.host()).places;
  const std::vector<Process>& processes = it->second.processes;
  if (batch.base() != it->second.sequence || !places.has_value()) return false;
  if (static_cast<size_t>(batch.changes_size()) != processes.size()) return false;
  for (size_t i = 0; i < processes.size(); ++i) {
    if (!Fit(batch.changes(static_cast<int>(i)), processes[i], (*places)[i])) return false;
  }
  return true;
}

bool JobView::IsBase(const std::string& host) const {
  const auto session = agent_sessions_.find(host);
  return session != agent_sessions_.end() && session->second.places.has_value();
}

const JobSnapshot& JobView::Snapshot(int64_t now_ns) {
  for (auto it = hosts_.begin(); it != hosts_.end();) {
    if (it->second.Drained() && now_ns - it->second.as_of_ns > kForgetDrainedNs) {
      agent_sessions_.erase(it->first);
      it = hosts_.erase(it);
      ++structure_;
    } else {
      ++it;
    }
  }
  if (ForgetLeftHosts(assembly_.Update(hosts_, structure_, now_ns), now_ns)) {
    assembly_.Update(hosts_, ++structure_, now_ns);
  }
  rhythm_.Observe(assembly_.snapshot());
  return *assembly_.snapshot();
}

// A node that was replaced is not heard of again. One that is lost while its ranks are missed is no such
// node.
bool JobView::ForgetLeftHosts(const JobSnapshot& snapshot, int64_t now_ns) {
  std::set<std::string> left;
  for (const auto& [name, host] : hosts_) {
    if (now_ns - host.as_of_ns > kForgetSilentNs) left.insert(name);
  }
  if (left.empty()) return false;
  for (const ProcessRef& ref : snapshot.processes) {
    if (!ref.superseded && !ref.process->ended) left.erase(ref.host->name);
  }
  for (const std::string& name : left) {
    service::LogInfo("host ", name, " is forgotten: it has been silent for ", kForgetSilentNs / kSecondNs,
                     " s, and its ranks run elsewhere");
    agent_sessions_.erase(name);
    hosts_.erase(name);
  }
  return !left.empty();
}

void JobView::Forget() {
  hosts_.clear();
  ++structure_;
  agent_sessions_.clear();
  fences_.Clear();
}

}  // namespace c4::c4d
