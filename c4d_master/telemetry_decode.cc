#include "c4d_master/telemetry_decode.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/unknown_peer.h"
#include "service/text.h"
#include "wire/segment.h"

namespace c4::c4d {
namespace {

static_assert(static_cast<int>(ProcessState::kGone) == v1::PROCESS_STATE_GONE);
static_assert(static_cast<int>(ProcessState::kStopped) == v1::PROCESS_STATE_STOPPED);
static_assert(static_cast<int>(Phase::kReady) == v1::PHASE_READY);
static_assert(static_cast<int>(Phase::kFailed) == v1::PHASE_FAILED);

// How the network plugin names the communicator of its queue pairs (ccl/plugins/net/identity.h).
constexpr char kPluginCommunicator[] = "net";

std::string ProcessName(const v1::ProcessReport& report) {
  return service::Concat("process ", report.process().pid(), " on ", CutText(report.process().host()));
}

Counter Decode(const v1::Counter& counter, const BatchTimes& times) {
  return {counter.count(), counter.count() == 0 ? kNever : times.Ago(counter.age_ns())};
}

Membership Decode(const v1::CommunicatorState& state, const BatchTimes& times) {
  Membership result;
  result.communicator_id = state.communicator_id();
  result.rank = state.rank();
  result.rank_count = state.rank_count();
  if (v1::Phase_IsValid(state.phase())) result.phase = static_cast<Phase>(state.phase());
  result.name = CutText(state.name());
  result.called = Decode(state.called(), times);
  result.started = Decode(state.started(), times);
  result.finished = Decode(state.finished(), times);
  result.last_called = DecodeOperation(state.last_called());
  result.last_started = DecodeOperation(state.last_started());
  result.p2p_called = Decode(state.p2p_called(), times);
  result.p2p_started = Decode(state.p2p_started(), times);
  result.p2p_finished = Decode(state.p2p_finished(), times);
  result.last_p2p_called = DecodeOperation(state.last_p2p_called());
  result.last_p2p_started = DecodeOperation(state.last_p2p_started());
  result.vendor = state.engine() == wire::kEngineVendor;
  result.sees_events = (state.seen() & wire::kSeesEvents) != 0;
  result.sees_kernels = (state.seen() & wire::kSeesKernels) != 0;
  result.parent_id = state.parent_id();
  result.phase_since_at_ns = times.Ago(state.phase_age_ns());
  if (state.has_gave_up()) {
    result.gave_up = {times.Ago(state.gave_up().age_ns()), state.gave_up().result(),
                      state.gave_up().blamed_rank()};
  }
  return result;
}

Carrier CarrierOf(uint32_t transport) {
  if (transport == wire::kTransportVendor) return Carrier::kVendor;
  return transport == wire::kTransportPlugin ? Carrier::kPlugin : Carrier::kQueuePair;
}

QueuePair Decode(const v1::QueuePairState& state, const BatchTimes& times) {
  QueuePair result;
  result.peer = state.peer();
  result.peer_number = state.peer_queue_pair_number();
  result.sends = state.direction() == v1::DIRECTION_SEND;
  result.channel = state.channel();
  result.index = state.index();
  result.carrier = CarrierOf(state.transport());
  result.posted_messages = state.posted_messages();
  result.posted_bytes = state.posted_bytes();
  result.completed_messages = state.completed_messages();
  result.completed_bytes = state.completed_bytes();
  result.moved_bytes = state.moved_bytes();
  if (state.last_heard_age_ns() > 0) result.last_heard_at_ns = times.Ago(state.last_heard_age_ns());
  if (state.moved_bytes() != 0) result.last_progress_at_ns = times.Ago(state.last_progress_age_ns());
  if (state.posted_messages() != 0) result.last_post_at_ns = times.Ago(state.last_post_age_ns());
  result.number = state.queue_pair_number();
  result.fences = state.fences();
  result.dead = state.dead();
  const auto buckets = std::min(static_cast<size_t>(state.latency_histogram_size()), kLatencyBuckets);
  for (size_t i = 0; i < buckets; ++i) result.latency[i] = state.latency_histogram(static_cast<int>(i));
  if (state.has_connection()) {
    const v1::ConnectionState& connection = state.connection();
    result.connection = {.known = true,
                         .wanted = connection.wanted_messages(),
                         .granted = connection.granted_messages(),
                         .done = connection.done_messages(),
                         .first_waits = connection.first_waits(),
                         .first_wait_sum_ns = connection.first_wait_sum_ns()};
  }
  result.local = CutText(state.local());
  result.remote = CutText(state.remote());
  return result;
}

// A destroyed communicator may be made again under the same id: the one in use counts.
bool Outranks(const Membership& a, const Membership& b) {
  const auto in_use = [](const Membership& m) { return m.phase == Phase::kReady || m.phase == Phase::kInit; };
  if (in_use(a) != in_use(b)) return in_use(a);
  return a.called.last_at_ns > b.called.last_at_ns;
}

void DecodeCommunicators(const v1::ProcessReport& report, const BatchTimes& times,
                         std::vector<std::string>* faults, Process* process) {
  std::map<std::pair<uint64_t, uint32_t>, size_t> known;  // (communicator, rank) -> index
  for (const v1::CommunicatorState& state : report.communicators()) {
    if (state.rank_count() == 0 || state.rank_count() > kMaxRankCount || state.rank() >= state.rank_count()) {
      faults->push_back(service::Concat(ProcessName(report), " claims rank ", state.rank(), " of ",
                                        state.rank_count(),
                                        " in a communicator; that communicator is left out"));
      continue;
    }
    Membership membership = Decode(state, times);
    const auto [it, is_new] =
        known.try_emplace({membership.communicator_id, membership.rank}, process->communicators.size());
    if (is_new) {
      process->communicators.push_back(std::move(membership));
    } else if (Outranks(membership, process->communicators[it->second])) {
      process->communicators[it->second] = std::move(membership);
    }
  }
  for (const v1::OperationSummary& summary : report.operations()) {
    if (summary.function() == v1::FUNCTION_SEND || summary.function() == v1::FUNCTION_RECV) continue;
    // A process with several ranks of one communicator does not say whose operations they were: the first's.
    const auto it = known.lower_bound({summary.communicator_id(), 0});
    if (it == known.end() || it->first.first != summary.communicator_id()) continue;
    process->communicators[it->second].timed += summary.operations();
    process->communicators[it->second].timed_ns += summary.duration_sum_ns();
  }
  // A large job has hundreds of them in a batch: room is made once.
  constexpr size_t kOver = SIZE_MAX;  // of a communicator that is over
  std::vector<size_t> owners;
  std::vector<size_t> counts(process->communicators.size());
  owners.reserve(static_cast<size_t>(report.queue_pairs_size()));
  for (const v1::QueuePairState& state : report.queue_pairs()) {
    const auto it = known.find({state.communicator_id(), state.rank()});
    owners.push_back(it == known.end() ? kOver : it->second);
    if (it != known.end()) ++counts[it->second];
  }
  for (size_t i = 0; i < counts.size(); ++i) process->communicators[i].queue_pairs.reserve(counts[i]);
  size_t next = 0;
  for (const v1::QueuePairState& state : report.queue_pairs()) {
    const size_t owner = owners[next++];
    if (owner == kOver) continue;
    Membership& membership = process->communicators[owner];
    const bool by_number = state.peer() == kUnknownPeer && state.peer_queue_pair_number() != 0;
    if (state.peer() >= membership.rank_count && !by_number) {
      faults->push_back(service::Concat(ProcessName(report), " has a queue pair with rank ", state.peer(),
                                        " of ", membership.rank_count, "; that queue pair is left out"));
      continue;
    }
    membership.queue_pairs.push_back(Decode(state, times));
  }
}

ProcessKey KeyOf(const v1::ProcessReport& report) {
  return {CutText(report.process().boot_id()), report.process().pid(), report.process().start_time_ticks()};
}

int32_t JobRank(const v1::ProcessReport& report, const Process& process) {
  const int32_t label = report.rank_label();
  const int32_t world = report.world_label();
  if (label >= 0 && (world <= 0 || label < world)) return label;
  const Membership* widest = nullptr;
  for (const Membership& membership : process.communicators) {
    if (widest == nullptr || membership.rank_count > widest->rank_count) widest = &membership;
  }
  return widest == nullptr ? -1 : static_cast<int32_t>(widest->rank);
}

bool IsOfAnother(const v1::ProcessReport& report, int64_t owner_uid) {
  return owner_uid >= 0 && report.has_owner_uid() && report.owner_uid() != owner_uid;
}

bool HasTooMany(const v1::ProcessReport& report) {
  return report.communicators_size() > kMaxCommunicatorsPerProcess ||
         report.queue_pairs_size() > kMaxQueuePairsPerProcess;
}

// Leaves out what is more than a process may have: of communicators those that are over, then those that were
// called longest ago; queue pairs from the end.
void CutExcess(v1::ProcessReport* report, const std::function<void(Limit)>& cut) {
  const auto tell = [&](const char* name, const char* what, int most) {
    cut({name, service::Concat(ProcessName(*report), " reports more than ", most, " ", what,
                               "; those that matter least are left out")});
  };
  if (const int has = report->communicators_size(); has > kMaxCommunicatorsPerProcess) {
    tell("communicators-of-a-process", "communicators", kMaxCommunicatorsPerProcess);
    const auto rank_of = [](const v1::CommunicatorState& state) {
      const bool in_use = state.phase() == v1::PHASE_INIT || state.phase() == v1::PHASE_READY;
      const bool called = state.called().count() > 0;
      return std::tuple(!in_use, !called, state.called().age_ns());
    };
    auto* const all = report->mutable_communicators();
    std::nth_element(all->begin(), all->begin() + kMaxCommunicatorsPerProcess, all->end(),
                     [&](const auto& a, const auto& b) { return rank_of(a) < rank_of(b); });
    all->DeleteSubrange(kMaxCommunicatorsPerProcess, has - kMaxCommunicatorsPerProcess);
  }
  if (const int has = report->queue_pairs_size(); has > kMaxQueuePairsPerProcess) {
    tell("queue-pairs-of-a-process", "queue pairs", kMaxQueuePairsPerProcess);
    report->mutable_queue_pairs()->DeleteSubrange(kMaxQueuePairsPerProcess, has - kMaxQueuePairsPerProcess);
  }
}

}  // namespace

std::string CutText(const std::string& text) {
  if (text.size() <= kMaxTextBytes) return text;
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;  // inside a UTF-8 character
  return text.substr(0, end);
}

OperationInfo DecodeOperation(const v1::OperationInfo& info) {
  return {static_cast<uint32_t>(info.function()), info.data_type(), info.reduction(), info.root(),
          info.count()};
}

Health DecodeHealth(const v1::ProcessHealth& health, const BatchTimes& times) {
  Health result;
  if (v1::ProcessState_IsValid(health.state())) result.state = static_cast<ProcessState>(health.state());
  result.state_since_at_ns = times.Ago(health.state_age_ns());
  result.last_progress_at_ns = times.Ago(health.progress_age_ns());
  if (health.io_progress_age_ns() > 0) result.last_io_at_ns = times.Ago(health.io_progress_age_ns());
  if (health.has_exit()) {
    result.exit_at_ns = times.Ago(health.exit().age_ns());
    if (health.exit().status_seen()) result.exit_status = health.exit().status();
  }
  result.cpu_ns = health.cpu_ns();
  result.io_bytes = health.io_bytes();
  result.wait_channel = CutText(health.wait_channel());
  return result;
}

absl::Status CheckBatch(const v1::TelemetryBatch& batch) {
  if (batch.host().empty()) return absl::InvalidArgumentError("the batch names no host");
  if (batch.host().size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(service::Concat("the batch's host name has ", batch.host().size(),
                                                      " bytes; at most ", kMaxTextBytes, " are taken"));
  }
  if (batch.monotonic_ns() <= 0 || batch.monotonic_ns() > kMaxMonotonicNs) {
    return absl::InvalidArgumentError(service::Concat("the batch of ", batch.host(),
                                                      " says that its node's monotonic ", "clock stands at ",
                                                      batch.monotonic_ns(), " ns"));
  }
  return absl::OkStatus();
}

std::optional<v1::TelemetryBatch> WithoutExcess(const v1::TelemetryBatch& batch, int64_t owner_uid,
                                                std::vector<std::string>* faults,
                                                std::vector<Limit>* limits) {
  const auto is_bad = [owner_uid](const v1::ProcessReport& report) {
    return IsOfAnother(report, owner_uid) || HasTooMany(report);
  };
  if (batch.processes_size() <= kMaxProcessesPerBatch &&
      std::none_of(batch.processes().begin(), batch.processes().end(), is_bad)) {
    return std::nullopt;
  }
  const auto cut = [&](Limit limit) {
    if (limits != nullptr) {
      limits->push_back(std::move(limit));
    } else {
      faults->push_back(std::move(limit.sentence));
    }
  };
  v1::TelemetryBatch kept = batch;
  kept.clear_processes();
  for (const v1::ProcessReport& report : batch.processes()) {
    if (IsOfAnother(report, owner_uid)) {
      faults->push_back(service::Concat(ProcessName(report), " belongs to uid ", report.owner_uid(),
                                        ", the job to uid ", owner_uid, " (--owner-uid); it is left out"));
      continue;
    }
    if (kept.processes_size() == kMaxProcessesPerBatch) {
      cut({"processes-of-a-batch",
           service::Concat("the batch of ", CutText(batch.host()), " holds more than ", kMaxProcessesPerBatch,
                           " processes; the rest is left out")});
      break;
    }
    v1::ProcessReport* const taken = kept.add_processes();
    *taken = report;
    CutExcess(taken, cut);
  }
  return kept;
}

std::vector<Process> DecodeProcesses(const v1::TelemetryBatch& batch, int64_t clock_offset_ns,
                                     std::vector<std::string>* faults) {
  const BatchTimes times(batch.monotonic_ns(), clock_offset_ns);
  std::vector<Process> result;
  result.reserve(static_cast<size_t>(batch.processes_size()));
  std::set<ProcessKey> known;
  for (const v1::ProcessReport& report : batch.processes()) {
    if (!known.insert(KeyOf(report)).second) {
      faults->push_back(
          service::Concat(ProcessName(report), " stands in one batch twice; its first report counts"));
      continue;
    }
    result.push_back(DecodeProcess(report, times, faults));
  }
  return result;
}

Process DecodeProcess(const v1::ProcessReport& report, const BatchTimes& times,
                      std::vector<std::string>* faults) {
  Process process;
  process.key = KeyOf(report);
  process.program = CutText(report.program());
  process.incarnation = report.incarnation();
  if (report.has_owner_uid()) process.owner_uid = report.owner_uid();
  process.ended = report.ended();
  process.world = report.world_label();
  process.in_operation_ns = report.in_operation_ns();
  process.operations_finished = report.operations_finished();
  // Without it nobody has looked at the process: that is no idle one.
  if (report.has_health()) process.health = DecodeHealth(report.health(), times);
  DecodeCommunicators(report, times, faults, &process);
  process.rank = JobRank(report, process);
  process.plugin_tells_addresses = std::any_of(
      process.communicators.begin(), process.communicators.end(), [](const Membership& membership) {
        return membership.name == kPluginCommunicator && HasAddresses(membership);
      });
  return process;
}

bool IsWelcome(const v1::ProcessReport& report, int64_t owner_uid) {
  return !IsOfAnother(report, owner_uid) && !HasTooMany(report);
}

}  // namespace c4::c4d
