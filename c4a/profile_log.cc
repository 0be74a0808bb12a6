#include "c4a/profile_log.h"

#include <utility>

namespace c4::agent {

void ProfileLog::Add(std::span<const wire::Record> records, const OperationTally& tally,
                     const ClockRelation& clock) {
  for (const wire::Record& record : records) {
    if (record.type != wire::kRecordOperation && record.type != wire::kRecordMark) continue;
    const bool full = profile_.operations_size() + profile_.marks_size() >= kMaxEntries;
    const wire::OperationRecord& operation = record.operation;
    const wire::MarkRecord& mark = record.mark;
    if (record.type == wire::kRecordMark) {
      if (full || mark.ended_ticks < mark.began_ticks) {
        ++left_out_;
      } else {
        AddMark(mark, clock);
      }
      continue;
    }
    const uint64_t communicator_id = tally.CommunicatorOf(record.slot, record.generation);
    if (full || communicator_id == 0 || operation.finished_ticks < operation.started_ticks) {
      ++left_out_;
    } else {
      AddOperation(operation, communicator_id, clock);
    }
  }
}

void ProfileLog::AddOperation(const wire::OperationRecord& operation, uint64_t communicator_id,
                              const ClockRelation& clock) {
  v1::ProfiledOperation* to = profile_.add_operations();
  to->set_communicator_id(communicator_id);
  v1::OperationInfo* info = to->mutable_info();
  if (v1::Function_IsValid(operation.info.function)) {
    info->set_function(static_cast<v1::Function>(operation.info.function));
  }
  info->set_data_type(operation.info.data_type);
  info->set_reduction(operation.info.reduction);
  info->set_root(operation.info.root);
  info->set_count(operation.info.count);
  to->set_sequence(operation.sequence);
  // A kernel's start comes from another clock and may seem to lie before the call.
  const uint64_t called_ticks =
      operation.called_ticks < operation.started_ticks && operation.called_ticks != 0
          ? operation.called_ticks
          : operation.started_ticks;
  to->set_called_ns(clock.ToMonotonicNs(called_ticks));
  to->set_called_for_ns(clock.ToDurationNs(operation.started_ticks - called_ticks));
  to->set_started_for_ns(clock.ToDurationNs(operation.finished_ticks - operation.started_ticks));
}

void ProfileLog::AddMark(const wire::MarkRecord& mark, const ClockRelation& clock) {
  v1::ProfiledMark* to = profile_.add_marks();
  to->set_kind(static_cast<v1::MarkKind>(mark.kind));
  to->set_began_ns(clock.ToMonotonicNs(mark.began_ticks));
  to->set_lasted_ns(clock.ToDurationNs(mark.ended_ticks - mark.began_ticks));
  to->set_step(mark.step);
  to->set_micro_batch(mark.micro_batch);
  to->set_chunk(mark.chunk);
}

void ProfileLog::Take(v1::ProcessReport* report) {
  if (profile_.operations_size() + profile_.marks_size() == 0 && left_out_ == 0) return;
  profile_.set_left_out(std::exchange(left_out_, 0));
  *report->mutable_profile() = std::move(profile_);
  profile_.Clear();  // what was moved from may hold anything
}

}  // namespace c4::agent
