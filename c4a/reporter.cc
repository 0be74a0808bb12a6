#include "c4a/reporter.h"

#include <algorithm>
#include <tuple>

#include "c4a/plan_messages.h"
#include "service/ip_address.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::ToUtf8;

v1::ProcessState ToProto(ProcessState state) {
  switch (state) {
    case ProcessState::kUnknown:
      return v1::PROCESS_STATE_UNSPECIFIED;
    case ProcessState::kRunning:
      return v1::PROCESS_STATE_RUNNING;
    case ProcessState::kSleeping:
      return v1::PROCESS_STATE_SLEEPING;
    case ProcessState::kBlocked:
      return v1::PROCESS_STATE_BLOCKED;
    case ProcessState::kStopped:
      return v1::PROCESS_STATE_STOPPED;
    case ProcessState::kTraced:
      return v1::PROCESS_STATE_TRACED;
    case ProcessState::kZombie:
      return v1::PROCESS_STATE_ZOMBIE;
    case ProcessState::kGone:
      break;
  }
  return v1::PROCESS_STATE_GONE;
}

v1::Phase PhaseToProto(uint32_t phase) {
  switch (phase) {
    case wire::kPhaseInit:
      return v1::PHASE_INIT;
    case wire::kPhaseReady:
      return v1::PHASE_READY;
    case wire::kPhaseFinalized:
      return v1::PHASE_FINALIZED;
    case wire::kPhaseDestroyed:
      return v1::PHASE_DESTROYED;
    case wire::kPhaseAborted:
      return v1::PHASE_ABORTED;
    case wire::kPhaseFailed:
      return v1::PHASE_FAILED;
    default:
      return v1::PHASE_UNSPECIFIED;
  }
}

v1::RecordLevel LevelToProto(uint32_t level) {
  switch (level) {
    case wire::kLevelOff:
      return v1::RECORD_LEVEL_OFF;
    case wire::kLevelCoarse:
      return v1::RECORD_LEVEL_COARSE;
    case wire::kLevelFine:
      return v1::RECORD_LEVEL_FINE;
    default:
      return v1::RECORD_LEVEL_UNSPECIFIED;
  }
}

// The numbers are the same on purpose; those that this version does not know become "unspecified".
v1::Function FunctionToProto(uint8_t function) {
  return v1::Function_IsValid(function) ? static_cast<v1::Function>(function) : v1::FUNCTION_UNSPECIFIED;
}

// Turns ticks into ages. A stamp from the future (the clocks' error) is 0 old; one that was never made, too.
class Ages {
 public:
  Ages(const ClockRelation& clock, int64_t now_ns) : clock_(clock), now_ns_(now_ns) {}
  int64_t Of(uint64_t ticks) const {
    return ticks == 0 ? 0 : std::max<int64_t>(0, now_ns_ - clock_.ToMonotonicNs(ticks));
  }
  uint64_t Duration(uint64_t ticks) const { return clock_.ToDurationNs(ticks); }

 private:
  const ClockRelation& clock_;
  const int64_t now_ns_;
};

void FillCounter(const wire::Counter& from, const Ages& ages, v1::Counter* to) {
  to->set_count(from.count);
  to->set_age_ns(from.count == 0 ? 0 : ages.Of(from.ticks));
  to->set_stream(from.stream);
}

void FillOperation(const wire::OperationInfo& from, v1::OperationInfo* to) {
  to->set_function(FunctionToProto(from.function));
  to->set_data_type(from.data_type);
  to->set_reduction(from.reduction);
  to->set_root(from.root);
  to->set_count(from.count);
}

bool IsMember(const wire::CommunicatorSlot& slot) {
  return slot.rank >= 0 && static_cast<uint32_t>(slot.rank) < slot.rank_count;
}

void FillCommunicator(const wire::CommunicatorSlot& slot, const Ages& ages, v1::CommunicatorState* to) {
  to->set_communicator_id(slot.communicator_id);
  to->set_parent_id(slot.parent_id);
  to->set_rank(static_cast<uint32_t>(slot.rank));
  to->set_rank_count(slot.rank_count);
  to->set_phase(PhaseToProto(slot.phase));
  to->set_name(ToUtf8(service::FieldText(slot.name, sizeof slot.name)));
  FillCounter(slot.called, ages, to->mutable_called());
  FillCounter(slot.enqueued, ages, to->mutable_enqueued());
  FillCounter(slot.started, ages, to->mutable_started());
  FillCounter(slot.finished, ages, to->mutable_finished());
  if (slot.called.count > 0) FillOperation(slot.last_called, to->mutable_last_called());
  if (slot.started.count > 0) FillOperation(slot.last_started, to->mutable_last_started());
  if (slot.p2p_called.count > 0) {
    FillCounter(slot.p2p_called, ages, to->mutable_p2p_called());
    FillCounter(slot.p2p_enqueued, ages, to->mutable_p2p_enqueued());
    FillCounter(slot.p2p_started, ages, to->mutable_p2p_started());
    FillCounter(slot.p2p_finished, ages, to->mutable_p2p_finished());
    FillOperation(slot.last_p2p_called, to->mutable_last_p2p_called());
    if (slot.p2p_started.count > 0) FillOperation(slot.last_p2p_started, to->mutable_last_p2p_started());
  }
  to->set_engine(slot.engine);
  to->set_seen(slot.seen);
  if (slot.gave_up_ticks != 0) {
    to->mutable_gave_up()->set_age_ns(ages.Of(slot.gave_up_ticks));
    to->mutable_gave_up()->set_result(slot.gave_up_result);
    to->mutable_gave_up()->set_blamed_rank(
        slot.blamed <= slot.rank_count ? static_cast<int32_t>(slot.blamed) - 1 : -1);
  }
  to->set_phase_age_ns(ages.Of(slot.ready_ticks != 0 ? slot.ready_ticks : slot.created_ticks));
}

void FillConnection(const wire::QueuePairSlot& slot, const Ages& ages, v1::ConnectionState* to) {
  to->set_wanted_messages(slot.wanted_messages);
  to->set_granted_messages(slot.granted_messages);
  to->set_done_messages(slot.done_messages);
  to->set_wanted_bytes(slot.wanted_bytes);
  to->set_done_bytes(slot.done_bytes);
  to->set_last_wanted_age_ns(ages.Of(slot.last_wanted_ticks));
  to->set_last_done_age_ns(ages.Of(slot.last_done_ticks));
  to->set_first_waits(slot.first_waits);
  to->set_first_wait_sum_ns(ages.Duration(slot.first_wait_sum_ticks));
  to->set_first_wait_max_ns(ages.Duration(slot.first_wait_max_ticks));
}

void FillQueuePair(const wire::QueuePairSlot& slot, const wire::CommunicatorSlot& communicator,
                   const Ages& ages, v1::QueuePairState* to) {
  to->set_communicator_id(communicator.communicator_id);
  to->set_rank(static_cast<uint32_t>(communicator.rank));
  to->set_peer(static_cast<uint32_t>(slot.peer));
  to->set_direction(v1::Direction_IsValid(static_cast<int>(slot.direction))
                        ? static_cast<v1::Direction>(slot.direction)
                        : v1::DIRECTION_UNSPECIFIED);
  to->set_channel(slot.channel);
  to->set_index(slot.index);
  to->set_transport(slot.transport);
  to->set_queue_pair_number(slot.queue_pair_number);
  to->set_peer_queue_pair_number(slot.peer_number);
  to->set_phase(PhaseToProto(slot.phase));
  to->set_local(EndpointText(slot.local));
  to->set_remote(EndpointText(slot.remote));
  to->set_posted_messages(slot.posted_messages);
  to->set_posted_bytes(slot.posted_bytes);
  to->set_completed_messages(slot.completed_messages);
  to->set_completed_bytes(slot.completed_bytes);
  to->set_moved_bytes(slot.moved_bytes);
  to->set_last_post_age_ns(ages.Of(slot.last_post_ticks));
  to->set_last_progress_age_ns(ages.Of(slot.last_progress_ticks));
  if (slot.last_heard_ticks != 0)
    to->set_last_heard_age_ns(std::max<int64_t>(1, ages.Of(slot.last_heard_ticks)));
  to->set_latency_sum_ns(ages.Duration(slot.latency_sum_ticks));
  to->set_latency_max_ns(ages.Duration(slot.latency_max_ticks));
  to->set_wait_sum_ns(ages.Duration(slot.wait_sum_ticks));
  to->set_wait_max_ns(ages.Duration(slot.wait_max_ticks));
  to->set_error(static_cast<uint32_t>(slot.error));
  if (slot.direction == wire::kDirectionSend) {
    to->set_fences(slot.fences);
    to->set_dead(slot.path_state == wire::kPathLost);
  }
  int used = wire::kLatencyBuckets;
  while (used > 0 && slot.latency_histogram[used - 1] == 0) --used;
  to->mutable_latency_histogram()->Add(slot.latency_histogram, slot.latency_histogram + used);
  if (slot.index == 0) FillConnection(slot, ages, to->mutable_connection());
}

// The slot of that generation, nullptr when it has another owner by now.
const wire::CommunicatorSlot* FindCommunicator(const SegmentSnapshot& snapshot, uint32_t index,
                                               uint32_t generation) {
  const auto& slots = snapshot.communicators;
  const auto found = std::lower_bound(slots.begin(), slots.end(), index,
                                      [](const auto& entry, uint32_t i) { return entry.index < i; });
  if (found == slots.end() || found->index != index || found->slot.generation != generation) return nullptr;
  return &found->slot;
}

}  // namespace

void FillHealth(const ProcessHealth& from, int64_t now_ns, v1::ProcessHealth* to) {
  to->set_state(ToProto(from.state));
  to->set_state_age_ns(std::max<int64_t>(0, now_ns - from.state_since_ns));
  to->set_wait_channel(from.wait_channel);
  to->set_cpu_ns(from.cpu_ns);
  to->set_io_bytes(from.io_bytes);
  to->set_progress_age_ns(std::max<int64_t>(0, now_ns - from.progress_ns));
  if (from.io_progress_ns != 0) {
    to->set_io_progress_age_ns(std::max<int64_t>(1, now_ns - from.io_progress_ns));
  }
  if (!from.exit.has_value()) return;
  to->mutable_exit()->set_age_ns(std::max<int64_t>(0, now_ns - from.exit->at_ns));
  to->mutable_exit()->set_status_seen(from.exit->status.has_value());
  to->mutable_exit()->set_status(from.exit->status.value_or(0));
}

namespace {

using ProcessKey = std::tuple<std::string, uint32_t, uint64_t>;

ProcessKey KeyOf(const v1::ProcessId& id) {
  return {id.boot_id(), id.pid(), id.start_time_ticks()};
}

// Takes the oldest entries out, for `most` to be left.
template <typename Entries>
uint64_t Shorten(int most, Entries* entries) {
  const int too_many = std::max(0, entries->size() - std::max(0, most));
  entries->DeleteSubrange(0, too_many);
  return static_cast<uint64_t>(too_many);
}

void MergeProfile(v1::ProcessReport* old, v1::ProcessReport* next) {
  if (!old->has_profile()) return;
  v1::Profile* profile = old->mutable_profile();
  const uint64_t left_out = profile->left_out() + next->profile().left_out();
  profile->MergeFrom(next->profile());
  // Marks are few, and without them operations belong to no step.
  uint64_t shortened = Shorten(kMostWaitingEntries, profile->mutable_marks());
  shortened += Shorten(kMostWaitingEntries - profile->marks_size(), profile->mutable_operations());
  profile->set_left_out(left_out + shortened);
  next->mutable_profile()->Swap(profile);
}

void MergeOperations(const v1::ProcessReport& old, v1::ProcessReport* next) {
  auto* summaries = next->mutable_operations();
  for (const v1::OperationSummary& more : old.operations()) {
    const auto same =
        std::find_if(summaries->begin(), summaries->end(), [&](const v1::OperationSummary& summary) {
          return summary.communicator_id() == more.communicator_id() && summary.function() == more.function();
        });
    if (same == summaries->end()) {
      *summaries->Add() = more;
      continue;
    }
    same->set_operations(same->operations() + more.operations());
    same->set_elements(same->elements() + more.elements());
    same->set_duration_sum_ns(same->duration_sum_ns() + more.duration_sum_ns());
    same->set_duration_max_ns(std::max(same->duration_max_ns(), more.duration_max_ns()));
    same->set_gap_max_ns(std::max(same->gap_max_ns(), more.gap_max_ns()));
  }
}

void FillHardware(const NumberedEvent& from, int64_t now_ns, v1::HardwareEvent* to) {
  to->set_kind(from.event.kind);
  to->set_device(ToUtf8(from.event.device));
  to->set_number(from.event.number);
  to->set_text(ToUtf8(from.event.text));
  to->set_age_ns(std::max<int64_t>(0, now_ns - from.event.at_ns));
  to->set_sequence(from.sequence);
  if (from.event.times > 1) to->set_times(from.event.times);
  to->set_address(from.event.address);
}

}  // namespace

std::string EndpointText(const wire::Endpoint& endpoint) {
  const auto address = service::IpAddress::FromBytes(endpoint.address);
  if (endpoint.port == 0 && !address.known()) return {};
  return service::IpPortText(address, endpoint.port);
}

v1::ProcessReport MakeProcessReport(const std::string& host, SegmentFile* segment, int64_t now_ns) {
  const SegmentSnapshot& snapshot = segment->snapshot();
  const wire::SegmentHeader& header = snapshot.header;
  const Ages ages(segment->clock(), now_ns);
  v1::ProcessReport report;
  v1::ProcessId* id = report.mutable_process();
  id->set_host(host);
  id->set_boot_id(BootIdText(header.header.writer.boot_id));
  id->set_pid(segment->pid());
  id->set_start_time_ticks(header.header.writer.start_time_ticks);
  report.set_job(ToUtf8(header.job));
  report.set_job_provisional(header.job_source == wire::kJobProvisional);
  report.set_incarnation(header.incarnation);
  report.set_rank_label(header.rank_label);
  report.set_world_label(header.world_label);
  report.set_program(ToUtf8(header.program));
  FillHealth(segment->health(), now_ns, report.mutable_health());
  report.set_ended(segment->ended());
  if (segment->owner_uid() >= 0) report.set_owner_uid(static_cast<uint32_t>(segment->owner_uid()));
  report.set_records_lost(segment->records_lost());
  report.set_level(LevelToProto(header.level));
  if (header.worker.declared != 0) FillWorker(header.worker, report.mutable_worker());
  segment->profile().Take(&report);
  segment->iterations().Take(&report);
  const std::vector<OperationTotals> operations = segment->TakeOperations();
  if (!segment->suspicion().empty()) return report;
  const OperationTally& tally = segment->tally();
  report.set_in_operation_ns(tally.InOperationNs(snapshot, segment->clock(), now_ns));
  report.set_operations_finished(tally.finished());
  if (tally.first_started_ns() != 0) {
    report.set_first_operation_age_ns(std::max<int64_t>(1, now_ns - tally.first_started_ns()));
  }
  for (const auto& entry : snapshot.communicators) {
    if (IsMember(entry.slot)) FillCommunicator(entry.slot, ages, report.add_communicators());
  }
  for (const auto& entry : snapshot.queue_pairs) {
    const wire::CommunicatorSlot* communicator =
        FindCommunicator(snapshot, entry.slot.communicator_slot, entry.slot.communicator_generation);
    if (communicator == nullptr || !IsMember(*communicator)) continue;
    if (entry.slot.peer < 0 && entry.slot.peer_number == 0) continue;  // nobody can tell whose it is
    FillQueuePair(entry.slot, *communicator, ages, report.add_queue_pairs());
  }
  for (const OperationTotals& totals : operations) {
    v1::OperationSummary* summary = report.add_operations();
    summary->set_communicator_id(totals.communicator_id);
    summary->set_function(FunctionToProto(totals.function));
    summary->set_operations(totals.operations);
    summary->set_elements(totals.elements);
    summary->set_duration_sum_ns(totals.duration_sum_ns);
    summary->set_duration_max_ns(totals.duration_max_ns);
    summary->set_gap_max_ns(totals.gap_max_ns);
  }
  return report;
}

v1::TelemetryBatch Reporter::Empty(int64_t monotonic_ns, int64_t unix_ns) {
  v1::TelemetryBatch batch;
  batch.set_host(options_.host);
  batch.set_agent_epoch(options_.agent_epoch);
  batch.set_sequence(++sequence_);
  batch.set_monotonic_ns(monotonic_ns);
  batch.set_unix_ns(unix_ns);
  batch.set_agent_version(options_.agent_version);
  for (const NumberedEvent& event : hardware_) FillHardware(event, monotonic_ns, batch.add_hardware());
  batch.set_hardware_left_out(hardware_left_out_);
  return batch;
}

void Reporter::SetHardware(const std::deque<NumberedEvent>& recent, uint64_t left_out) {
  hardware_ = recent;
  hardware_left_out_ = left_out;
}

std::map<std::string, v1::TelemetryBatch> Reporter::Report(std::span<SegmentFile* const> processes,
                                                           int64_t monotonic_ns, int64_t unix_ns) {
  std::map<std::string, v1::TelemetryBatch> batches;
  for (SegmentFile* segment : processes) {
    if (!segment->alive()) segment->reported_after_end = true;
    std::string job = ToUtf8(segment->header().job);
    if (job.empty()) continue;
    const auto [at, added] = batches.try_emplace(std::move(job));
    if (added) at->second = Empty(monotonic_ns, unix_ns);
    *at->second.add_processes() = MakeProcessReport(options_.host, segment, monotonic_ns);
  }
  return batches;
}

void Supersede(v1::TelemetryBatch old, v1::TelemetryBatch* next) {
  std::map<ProcessKey, v1::ProcessReport*> processes;
  for (v1::ProcessReport& report : *next->mutable_processes()) processes[KeyOf(report.process())] = &report;
  std::vector<v1::ProcessReport*> ended;
  for (v1::ProcessReport& report : *old.mutable_processes()) {
    const auto found = processes.find(KeyOf(report.process()));
    if (found != processes.end()) {
      MergeProfile(&report, found->second);
      MergeIterations(&report, found->second);
      MergeOperations(report, found->second);
    } else if (report.ended()) {
      ended.push_back(&report);  // a process leaves in order once
    }
  }
  for (v1::ProcessReport* report : ended) *next->add_processes() = std::move(*report);
}

}  // namespace c4::agent
