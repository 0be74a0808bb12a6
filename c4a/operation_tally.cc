#include "c4a/operation_tally.h"

#include <algorithm>

namespace c4::agent {

void OperationTally::Learn(const SegmentSnapshot& snapshot) {
  for (const auto& entry : snapshot.communicators) {
    Owners& owners = owners_[entry.index];
    if (owners.now.communicator_id != 0 && owners.now.generation == entry.slot.generation) continue;
    owners.before = owners.now;
    owners.now = {.generation = entry.slot.generation,
                  .communicator_id = entry.slot.communicator_id,
                  .rank_count = entry.slot.rank_count};
  }
}

const OperationTally::Owner* OperationTally::Find(uint32_t slot, uint32_t generation) const {
  const auto found = owners_.find(slot);
  if (found == owners_.end()) return nullptr;
  for (const Owner* owner : {&found->second.now, &found->second.before}) {
    if (owner->communicator_id != 0 && owner->generation == generation) return owner;
  }
  return nullptr;
}

uint64_t OperationTally::CommunicatorOf(uint32_t slot, uint32_t generation) const {
  const Owner* const owner = Find(slot, generation);
  return owner == nullptr ? 0 : owner->communicator_id;
}

uint32_t OperationTally::RankCountOf(uint32_t slot, uint32_t generation) const {
  const Owner* const owner = Find(slot, generation);
  return owner == nullptr ? 0 : owner->rank_count;
}

uint64_t OperationTally::Add(std::span<const wire::Record> records, const ClockRelation& clock) {
  uint64_t left_out = 0;
  for (const wire::Record& record : records) {
    if (record.type != wire::kRecordOperation) continue;
    auto* const owner = const_cast<Owner*>(Find(record.slot, record.generation));
    if (owner == nullptr) {
      ++left_out;
      continue;
    }
    const wire::OperationRecord& operation = record.operation;
    OperationTotals& totals = totals_[{owner->communicator_id, operation.info.function}];
    totals.communicator_id = owner->communicator_id;
    totals.function = operation.info.function;
    totals.operations += 1;
    totals.elements += operation.info.count;
    ++finished_;
    if (operation.finished_ticks >= operation.started_ticks) {
      const int64_t started_ns = clock.ToMonotonicNs(operation.started_ticks);
      if (first_started_ns_ == 0) first_started_ns_ = started_ns;
      in_operation_.Add(started_ns, std::max(started_ns, clock.ToMonotonicNs(operation.finished_ticks)));
      const uint64_t duration_ns = clock.ToDurationNs(operation.finished_ticks - operation.started_ticks);
      totals.duration_sum_ns += duration_ns;
      totals.duration_max_ns = std::max(totals.duration_max_ns, duration_ns);
    }
    // Rings of several threads are read one after the other: only steps forward are gaps.
    if (operation.finished_ticks > owner->last_finished_ticks) {
      if (owner->last_finished_ticks != 0) {
        const uint64_t gap_ns = clock.ToDurationNs(operation.finished_ticks - owner->last_finished_ticks);
        totals.gap_max_ns = std::max(totals.gap_max_ns, gap_ns);
      }
      owner->last_finished_ticks = operation.finished_ticks;
    }
  }
  return left_out;
}

uint64_t OperationTally::InOperationNs(const SegmentSnapshot& snapshot, const ClockRelation& clock,
                                       int64_t now_ns) const {
  // Only those that began in a communicator that lives: what a dead one left open is over.
  int64_t since_ns = now_ns;
  for (const auto& entry : snapshot.communicators) {
    if (entry.slot.phase != wire::kPhaseReady) continue;
    const wire::Counter* const pairs[][2] = {{&entry.slot.started, &entry.slot.finished},
                                             {&entry.slot.p2p_started, &entry.slot.p2p_finished}};
    for (const auto& [started, finished] : pairs) {
      if (started->count > finished->count)
        since_ns = std::min(since_ns, clock.ToMonotonicNs(started->ticks));
    }
  }
  return in_operation_.CoveredWith(since_ns, now_ns);
}

std::vector<OperationTotals> OperationTally::Take() {
  std::vector<OperationTotals> result;
  result.reserve(totals_.size());
  for (const auto& [key, totals] : totals_) result.push_back(totals);
  totals_.clear();
  return result;
}

}  // namespace c4::agent
