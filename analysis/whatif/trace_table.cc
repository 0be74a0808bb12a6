#include "analysis/whatif/trace_table.h"

#include <algorithm>
#include <unordered_map>

#include "absl/strings/str_cat.h"

namespace c4::whatif {
namespace {

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

absl::Status Contradicts(const char* name, int said, const char* found_what, int found) {
  return Wrong(absl::StrCat("the metadata say ", name, " ", said, ", the trace has ", found, " ", found_what,
                            ": give the metadata of this job, or a trace of all its workers"));
}

std::string Sentence(const OperationRecord& record) {
  return absl::StrCat(OperationName(static_cast<OperationType>(record.type)), " ", record.sequence,
                      " of step ", record.step, ", dp_rank ", record.dp_rank, ", stage ", record.stage);
}

}  // namespace

absl::StatusOr<TraceTable> TraceTable::Make(const TraceRecords& records, const JobShape& shape) {
  if (records.size() == 0) {
    return Wrong(records.damaged().empty() ? "the trace has no operations"
                                           : absl::StrCat("the trace has no operation that can be used; ",
                                                          records.damaged().begin()->second.Sentence()));
  }
  TraceTable table(records);
  absl::Status made = table.FindShape(shape);
  if (made.ok()) made = table.FindRanks();
  if (made.ok()) made = table.Fill();
  if (!made.ok()) return made;
  table.FindUsual();
  return table;
}

size_t TraceTable::Key(size_t step, int stage, int dp, OperationType type) const {
  const size_t worker =
      (step * static_cast<size_t>(pp_size_) + static_cast<size_t>(stage)) * static_cast<size_t>(dp_size_) +
      static_cast<size_t>(dp);
  return worker * kOperationTypes + Index(type);
}

size_t TraceTable::StepOf(int32_t step) const {
  return static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
}

absl::Status TraceTable::FindShape(const JobShape& shape) {
  int chunks = 0;
  int32_t last = 0;
  for (size_t i = 0; i < records_->size(); ++i) {
    const OperationRecord& record = (*records_)[i];
    dp_size_ = std::max(dp_size_, record.dp_rank + 1);
    pp_size_ = std::max(pp_size_, record.stage + 1);
    chunks = std::max(chunks, record.chunk + 1);
    if (i > 0 && record.step == last) continue;  // records of a step mostly stand together
    last = record.step;
    steps_.push_back(last);
  }
  std::sort(steps_.begin(), steps_.end());
  steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
  if (shape.dp_size != 0 && shape.dp_size != dp_size_) {
    return Contradicts("dp_size", shape.dp_size, "data-parallel ranks", dp_size_);
  }
  if (shape.pp_size != 0 && shape.pp_size != pp_size_) {
    return Contradicts("pp_size", shape.pp_size, "pipeline stages", pp_size_);
  }
  if (shape.vpp_size != 0 && chunks > 0 && shape.vpp_size != chunks) {
    return Contradicts("vpp_size", shape.vpp_size, "model chunks a stage", chunks);
  }
  const int64_t product =
      int64_t{dp_size_} * pp_size_ * std::max(1, shape.tp_size) * std::max(1, shape.cp_size);
  if (shape.world_size != 0 && shape.world_size != product && shape.tp_size != 0) {
    return Wrong(absl::StrCat("the metadata say world_size ", shape.world_size, ", but dp_size ", dp_size_,
                              " x pp_size ", pp_size_, " x tp_size ", std::max(1, shape.tp_size),
                              " x dsp_size ", std::max(1, shape.cp_size), " is ", product,
                              ": correct the metadata"));
  }
  const size_t buckets = steps_.size() * static_cast<size_t>(dp_size_) * static_cast<size_t>(pp_size_);
  if (buckets > 2 * records_->size() + 1024) {
    return Wrong(absl::StrCat("the trace has ", records_->size(),
                              " operations, which is nothing like whole steps of ", dp_size_,
                              " data-parallel ranks x ", pp_size_, " stages x ", steps_.size(),
                              " steps: look at its columns dp_rank, stage and step"));
  }
  return absl::OkStatus();
}

absl::Status TraceTable::FindRanks() {
  ranks_.assign(static_cast<size_t>(dp_size_) * static_cast<size_t>(pp_size_), -1);
  size_t others = 0;
  std::vector<bool> seen(ranks_.size());
  for (size_t i = 0; i < records_->size(); ++i) {
    const OperationRecord& record = (*records_)[i];
    const size_t worker = static_cast<size_t>(record.stage) * static_cast<size_t>(dp_size_) + record.dp_rank;
    int32_t& rank = ranks_[worker];
    others += seen[worker] && rank != record.rank ? 1 : 0;
    if (!seen[worker] || record.rank < rank) rank = record.rank;
    seen[worker] = true;
  }
  if (const auto absent = std::find(seen.begin(), seen.end(), false); absent != seen.end()) {
    const auto worker = static_cast<int>(absent - seen.begin());
    return Wrong(absl::StrCat("the trace has no operation of dp_rank ", worker % dp_size_, ", stage ",
                              worker / dp_size_, ", though it has ", dp_size_, " data-parallel ranks and ",
                              pp_size_, " stages: merge the profiles of all workers into it"));
  }
  if (others > 0) {
    notes_.push_back(
        "several ranks stand for the same dp_rank and stage (a tensor or context group): the lowest "
        "rank of each is taken");
  }
  const bool unnamed = std::find(ranks_.begin(), ranks_.end(), -1) != ranks_.end();
  if (unnamed) {
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i] = static_cast<int32_t>(i);
    notes_.push_back("the trace names no ranks: rank = stage x dp_size + dp_rank");
    return absl::OkStatus();
  }
  std::vector<int32_t> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return Wrong(
        absl::StrCat("rank ", *twice, " stands for two different (dp_rank, stage): correct the column rank"));
  }
  return absl::OkStatus();
}

absl::Status TraceTable::Fill() {
  const size_t keys =
      steps_.size() * static_cast<size_t>(pp_size_) * static_cast<size_t>(dp_size_) * kOperationTypes;
  counts_.assign(keys, 0);
  begins_.assign(keys + 1, 0);
  int32_t step = steps_.front();  // records of a step mostly stand together
  size_t step_index = 0;
  const auto key_of = [&](const OperationRecord& record) {
    if (record.step != step) {
      step = record.step;
      step_index = StepOf(step);
    }
    return Key(step_index, record.stage, record.dp_rank, static_cast<OperationType>(record.type));
  };
  const auto taken = [this](const OperationRecord& record) {
    return record.rank < 0 ||
           record.rank ==
               ranks_[static_cast<size_t>(record.stage) * static_cast<size_t>(dp_size_) + record.dp_rank];
  };
  for (size_t i = 0; i < records_->size(); ++i) {
    const OperationRecord& record = (*records_)[i];
    if (taken(record)) ++begins_[key_of(record) + 1];
  }
  for (size_t i = 0; i < keys; ++i) begins_[i + 1] += begins_[i];
  order_.resize(begins_.back());
  for (size_t i = 0; i < records_->size(); ++i) {
    const OperationRecord& record = (*records_)[i];
    if (!taken(record)) continue;
    const size_t bucket = key_of(record);
    order_[begins_[bucket] + counts_[bucket]++] = static_cast<uint32_t>(i);
  }
  for (size_t i = 0; i < keys; ++i) {
    absl::Status sorted = SortBucket(i);
    if (!sorted.ok()) return sorted;
  }
  if (copies_ > 0) {
    notes_.push_back(
        absl::StrCat(copies_, " operations stand in the trace twice with the same times, the first in line ",
                     copy_line_, ": taken once"));
  }
  return absl::OkStatus();
}

absl::Status TraceTable::SortBucket(size_t key) {
  const std::span<uint32_t> bucket(order_.data() + begins_[key], counts_[key]);
  const auto before = [this](uint32_t a, uint32_t b) {
    const OperationRecord& left = (*records_)[a];
    const OperationRecord& right = (*records_)[b];
    if (left.sequence != right.sequence) return left.sequence < right.sequence;
    if (left.start_s != right.start_s) return left.start_s < right.start_s;
    return left.line < right.line;
  };
  if (!std::is_sorted(bucket.begin(), bucket.end(), before)) std::sort(bucket.begin(), bucket.end(), before);
  size_t kept = std::min<size_t>(1, bucket.size());
  for (size_t i = 1; i < bucket.size(); ++i) {
    const OperationRecord& last = (*records_)[bucket[kept - 1]];
    const OperationRecord& next = (*records_)[bucket[i]];
    if (next.sequence == last.sequence) {
      if (next.start_s == last.start_s && next.duration_s == last.duration_s) {
        if (copies_++ == 0) copy_line_ = next.line;
        continue;
      }
      if (next.sequence >= 0) {
        return Wrong(absl::StrCat("lines ", last.line, " and ", next.line, " are both ", Sentence(next),
                                  ", with different times: remove one of them"));
      }
    }
    bucket[kept++] = bucket[i];
  }
  counts_[key] = static_cast<uint32_t>(kept);
  return absl::OkStatus();
}

void TraceTable::FindUsual() {
  usual_.assign(static_cast<size_t>(pp_size_) * kOperationTypes, 0);
  for (int stage = 0; stage < pp_size_; ++stage) {
    for (size_t t = 0; t < kOperationTypes; ++t) {
      const auto type = static_cast<OperationType>(t);
      std::unordered_map<size_t, size_t> votes;
      for (size_t step = 0; step < steps_.size(); ++step) {
        for (int dp = 0; dp < dp_size_; ++dp) ++votes[Count(step, stage, dp, type)];
      }
      size_t best = 0;
      size_t most = 0;
      for (const auto& [count, number] : votes) {
        const bool larger = type == OperationType::kGc || number == most;
        if (larger ? count < best : number < most) continue;
        best = count;
        most = number;
      }
      usual_[static_cast<size_t>(stage) * kOperationTypes + t] = static_cast<uint32_t>(best);
    }
  }
}

std::span<const uint32_t> TraceTable::Bucket(size_t step, int stage, int dp, OperationType type) const {
  const size_t key = Key(step, stage, dp, type);
  return {order_.data() + begins_[key], counts_[key]};
}

std::string TraceTable::WorkerName(int dp, int stage) const {
  const size_t worker = static_cast<size_t>(stage) * static_cast<size_t>(dp_size_) + static_cast<size_t>(dp);
  return absl::StrCat("rank ", ranks_[worker], " (dp_rank ", dp, ", stage ", stage, ")");
}

}  // namespace c4::whatif
