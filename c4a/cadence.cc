#include "c4a/cadence.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/hash/hash.h"

namespace c4::agent {
namespace {

constexpr int64_t kWindowNs = 300'000'000'000;
// Who has stepped so often is expected to step again.
constexpr uint32_t kRegularGaps = 3;
// But not for ever.
constexpr int64_t kExpectedNs = 10'000'000'000;

bool CannotRun(v1::ProcessState state) {
  return state == v1::PROCESS_STATE_STOPPED || state == v1::PROCESS_STATE_TRACED ||
         state == v1::PROCESS_STATE_ZOMBIE || state == v1::PROCESS_STATE_GONE;
}

uint64_t KeyOf(const v1::ProcessId& id) {
  return absl::HashOf(id.boot_id(), id.pid(), id.start_time_ticks());
}

// Of whatever is told at once when it changes.
uint64_t StructureOf(const v1::ProcessReport& report) {
  uint64_t hash =
      absl::HashOf(report.job(), report.incarnation(), report.rank_label(), report.ended(), report.level(),
                   CannotRun(report.health().state()), report.health().has_exit(), report.has_worker());
  for (const v1::CommunicatorState& state : report.communicators()) {
    hash = absl::HashOf(hash, state.communicator_id(), state.rank(), static_cast<int>(state.phase()),
                        state.seen(), state.has_gave_up());
  }
  for (const v1::QueuePairState& state : report.queue_pairs()) {
    hash = absl::HashOf(hash, state.queue_pair_number(), static_cast<int>(state.phase()), state.error(),
                        state.fences(), state.dead(), state.remote(), state.peer_queue_pair_number());
  }
  return hash;
}

uint64_t StructureOf(const v1::TelemetryBatch& batch) {
  const uint64_t event = batch.hardware().empty() ? 0 : batch.hardware(batch.hardware_size() - 1).sequence();
  return absl::HashOf(event, batch.hardware_left_out(), batch.segments_refused());
}

bool IsOpen(const v1::CommunicatorState& state) {
  return state.phase() == v1::PHASE_INIT || state.phase() == v1::PHASE_READY;
}

uint64_t StepsOf(const v1::CommunicatorState& state) {
  return state.called().count() + state.started().count() + state.finished().count() +
         state.p2p_called().count() + state.p2p_started().count() + state.p2p_finished().count();
}

// Since its last step; INT64_MAX: there was none.
int64_t QuietNs(const v1::CommunicatorState& state) {
  int64_t quiet_ns = INT64_MAX;
  for (const v1::Counter* counter : {&state.called(), &state.started(), &state.finished(),
                                     &state.p2p_called(), &state.p2p_started(), &state.p2p_finished()}) {
    if (counter->count() != 0) quiet_ns = std::min(quiet_ns, counter->age_ns());
  }
  return quiet_ns;
}

bool IsInside(const v1::CommunicatorState& state) {
  return state.started().count() > state.finished().count() ||
         state.p2p_started().count() > state.p2p_finished().count();
}

}  // namespace

void Cadence::Ask(int64_t interval_ns) {
  interval_ns_ = std::clamp<int64_t>(interval_ns, 0, kLongestNs);
}

bool Cadence::IsDue(const v1::TelemetryBatch& batch) {
  const int64_t now_ns = batch.monotonic_ns();
  const bool was_unusual = std::exchange(unusual_, Look(batch));
  looked_ns_ = now_ns;
  if (interval_ns_ == 0 || now_ns < turn_ns_) {
    turn_ns_ = now_ns;
    wait_ns_ = 0;
    return true;
  }
  if (wait_ns_ == 0) {
    const auto share = static_cast<int64_t>(std::hash<std::string>()(batch.host()) % 1024);
    wait_ns_ = interval_ns_ / 1024 * share + 1;
  }
  if (now_ns - turn_ns_ < std::min(wait_ns_, interval_ns_)) return unusual_ || was_unusual;
  turn_ns_ = now_ns;
  wait_ns_ = interval_ns_;
  return true;
}

bool Cadence::Look(const v1::TelemetryBatch& batch) {
  bool unusual = batch.processes().empty();
  for (auto& [key, process] : processes_) process.seen = false;
  for (const v1::ProcessReport& report : batch.processes()) {
    if (Look(report, batch.monotonic_ns(), looked_ns_)) unusual = true;
  }
  if (std::erase_if(processes_, [](const auto& entry) { return !entry.second.seen; }) > 0) unusual = true;
  const uint64_t structure = StructureOf(batch);
  if (std::exchange(hardware_, structure) != structure) unusual = true;
  return unusual;
}

bool Cadence::Look(const v1::ProcessReport& report, int64_t now_ns, int64_t since_ns) {
  const auto [at, is_new] = processes_.try_emplace(KeyOf(report.process()));
  Process& process = at->second;
  process.seen = true;
  const uint64_t structure = StructureOf(report);
  bool unusual = is_new || process.structure != structure || report.has_profile();
  if (is_new || process.structure != structure) {
    process.structure = structure;
    std::unordered_map<uint64_t, Steps> known;
    for (const Steps& steps : process.communicators) known.emplace(steps.id, steps);
    process.communicators.clear();
    for (const v1::CommunicatorState& state : report.communicators()) {
      const uint64_t id = absl::HashOf(state.communicator_id(), state.rank());
      process.communicators.push_back(known.contains(id) ? known[id] : Steps{.id = id, .window_ns = now_ns});
    }
  }
  const bool lives = !report.ended() && report.health().state() != v1::PROCESS_STATE_GONE;
  if (!lives) return unusual;
  int64_t quiet_ns = INT64_MAX;
  for (int i = 0; i < report.communicators_size(); ++i) {
    const v1::CommunicatorState& state = report.communicators(i);
    if (!IsOpen(state)) continue;
    quiet_ns = std::min(quiet_ns, QuietNs(state));
    if (LooksUnusual(state, now_ns, since_ns, &process.communicators[static_cast<size_t>(i)])) unusual = true;
  }
  const auto is_quiet = [](int64_t ns) { return ns > kQuietNs && ns < kSettledNs; };
  for (const v1::QueuePairState& state : report.queue_pairs()) {
    int64_t last_ns = INT64_MAX;
    if (state.moved_bytes() != 0) last_ns = state.last_progress_age_ns();
    if (state.posted_messages() != 0) last_ns = std::min(last_ns, state.last_post_age_ns());
    quiet_ns = std::min(quiet_ns, last_ns);
    const bool under_way =
        state.direction() == v1::DIRECTION_SEND && state.posted_bytes() > state.completed_bytes();
    if (under_way && is_quiet(last_ns)) unusual = true;
  }
  return unusual || is_quiet(quiet_ns);
}

bool Cadence::LooksUnusual(const v1::CommunicatorState& state, int64_t now_ns, int64_t since_ns,
                           Steps* steps) const {
  if (state.phase() == v1::PHASE_INIT) return true;
  const uint64_t count = StepsOf(state);
  const int64_t quiet_ns = QuietNs(state);
  if (now_ns - steps->window_ns > kWindowNs) {
    for (Longest* longest : {&steps->inside_ns, &steps->outside_ns}) {
      longest->former_ns = std::exchange(longest->ns, 0);
    }
    steps->window_ns = now_ns;
  }
  if (count != steps->count) {
    // It stepped at some time since the look before.
    if (steps->count != 0) {
      Longest& longest = steps->inside ? steps->inside_ns : steps->outside_ns;
      longest.ns = std::max(longest.ns, steps->quiet_ns + std::max<int64_t>(0, now_ns - since_ns));
      if (!steps->inside) steps->gaps = std::min(steps->gaps + 1, kRegularGaps);
    }
    steps->count = count;
  }
  if (count == 0) return false;
  steps->quiet_ns = quiet_ns;
  steps->inside = IsInside(state);
  const Longest& longest = steps->inside ? steps->inside_ns : steps->outside_ns;
  const int64_t usual_ns = std::max(longest.ns, longest.former_ns);
  if (quiet_ns <= std::max(kQuietNs, usual_ns)) return false;
  if (steps->inside) return quiet_ns < kSettledNs;
  // Others may wait for it to call; or the job goes on without it.
  return steps->gaps == kRegularGaps && quiet_ns < 4 * usual_ns + kExpectedNs;
}

}  // namespace c4::agent
