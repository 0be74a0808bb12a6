#include "analysis/whatif/trace.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/own_time.h"
#include "analysis/whatif/trace_table.h"

namespace c4::whatif {

void TraceRecords::Add(const OperationRecord& record, float lag_s) {
  if (lag_s > 0) {
    lags_s_.resize(size_ + 1);
    lags_s_[size_] = lag_s;
  }
  if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<OperationRecord[]>(kBlock));
  blocks_.back()[size_++ % kBlock] = record;
}

void TraceRecords::AddDamaged(int32_t step, uint32_t line, const std::string& why) {
  damaged_.try_emplace(step, Damage{line, why});
}

size_t Trace::Count(int stage, OperationType type) const {
  const size_t at = static_cast<size_t>(stage) * kOperationTypes + Index(type);
  return first_of[at + 1] - first_of[at];
}

size_t Trace::Find(int stage, OperationType type, size_t index) const {
  return first_of[static_cast<size_t>(stage) * kOperationTypes + Index(type)] + index;
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Whether each step has what most have; why not.
class StepJudge {
 public:
  StepJudge(const TraceTable& table, const TraceRecords& records) : table_(table), records_(records) {}

  // Empty: the step is complete.
  std::string Complaint(size_t step) const {
    const auto damage = records_.damaged().find(table_.steps()[step]);
    if (damage != records_.damaged().end()) return damage->second.Sentence();
    for (const OperationType type : {OperationType::kForwardCompute, OperationType::kBackwardCompute}) {
      std::string other = OtherBatch(step, type);
      if (!other.empty()) return other;
    }
    for (int stage = 0; stage < table_.pp_size(); ++stage) {
      for (int dp = 0; dp < table_.dp_size(); ++dp) {
        std::string lack = Lack(step, stage, dp);
        if (!lack.empty()) return lack;
      }
    }
    return "";
  }

 private:
  // Every worker of the step has the same other number of micro-batches.
  std::string OtherBatch(size_t step, OperationType type) const {
    const size_t usual = table_.Usual(0, type);
    const size_t here = table_.Count(step, 0, 0, type);
    if (here == usual || here == 0) return "";
    for (int stage = 0; stage < table_.pp_size(); ++stage) {
      for (int dp = 0; dp < table_.dp_size(); ++dp) {
        if (table_.Count(step, stage, dp, type) != here) return "";
      }
    }
    return absl::StrCat("every worker has ", here, " ", OperationName(type),
                        " operations where most steps have ", usual, " (a warm-up of the batch size?)");
  }

  std::string Lack(size_t step, int stage, int dp) const {
    size_t all = 0;
    std::string first;
    for (size_t t = 0; t < kOperationTypes; ++t) {
      const auto type = static_cast<OperationType>(t);
      const size_t here = table_.Count(step, stage, dp, type);
      const size_t usual = table_.Usual(stage, type);
      all += here;
      if (here == usual || !first.empty()) continue;
      if (type == OperationType::kGc && here < usual) continue;  // filled in: a pause that did not happen
      first = absl::StrCat(" has ", here, " ", OperationName(type), " operations, not ", usual);
    }
    if (first.empty()) return "";
    return absl::StrCat(table_.WorkerName(dp, stage), all == 0 ? " has no operations" : first);
  }

  const TraceTable& table_;
  const TraceRecords& records_;
};

void LayOutTemplate(const TraceTable& table, size_t template_step, Trace* trace) {
  for (int stage = 0; stage < trace->pp_size; ++stage) {
    for (size_t t = 0; t < kOperationTypes; ++t) {
      const auto type = static_cast<OperationType>(t);
      trace->first_of.push_back(trace->operations.size());
      const std::span<const uint32_t> here = table.Bucket(template_step, stage, 0, type);
      for (size_t i = 0; i < table.Usual(stage, type); ++i) {
        TemplateOperation operation;
        operation.type = type;
        operation.stage = stage;
        operation.index = static_cast<int>(i);
        operation.start_s = operation.end_s = kNever;
        if (i < here.size()) {
          const OperationRecord& record = table.records()[here[i]];
          operation.chunk = record.chunk;
          operation.global_chunk = record.global_chunk;
          operation.micro_batch = record.micro_batch;
          operation.start_s = record.start_s;
          operation.end_s = trace->End_s(record.start_s, record.duration_s);
        }
        trace->operations.push_back(operation);
      }
    }
  }
  trace->first_of.push_back(trace->operations.size());
}

// Times of step `from` of the table into step `to` of the trace.
void FillStep(const TraceTable& table, size_t from, size_t to, Trace* trace) {
  const size_t lanes = trace->lanes();
  double first_s = kNever;
  double last_s = -kNever;
  for (int stage = 0; stage < trace->pp_size; ++stage) {
    for (int dp = 0; dp < trace->dp_size; ++dp) {
      const size_t lane = trace->Lane(to, dp);
      for (size_t t = 0; t < kOperationTypes; ++t) {
        const auto type = static_cast<OperationType>(t);
        size_t at = trace->Find(stage, type, 0) * lanes + lane;
        for (const uint32_t index : table.Bucket(from, stage, dp, type)) {
          const OperationRecord& record = table.records()[index];
          trace->start_s[at] = record.start_s;
          trace->duration_s[at] = record.duration_s;
          if (!trace->lag_s.empty()) trace->lag_s[at] = table.records().lag_s(index);
          first_s = std::min(first_s, record.start_s);
          last_s = std::max(last_s, trace->End_s(record.start_s, record.duration_s));
          at += lanes;
        }
      }
    }
  }
  trace->measured_step_s.push_back(last_s - first_s);
}

bool SinglePrecision(const TraceRecords& records) {
  for (size_t i = 0; i < records.size(); ++i) {
    const double start_s = records[i].start_s;
    if (static_cast<double>(static_cast<float>(start_s)) != start_s) return false;
  }
  return true;
}

absl::Status NoStep(const Trace& trace) {
  const auto& [step, why] = *trace.left_out.begin();
  return absl::InvalidArgumentError(
      absl::StrCat("no step of the trace is complete, so that nothing can be analysed; step ", step, ": ",
                   why, ". Record whole steps on every worker, from the first all-gather to the optimizer."));
}

void NoteLeftOut(size_t all, Trace* trace) {
  if (trace->left_out.empty()) return;
  constexpr size_t kShown = 5;
  size_t shown = 0;
  for (const auto& [step, why] : trace->left_out) {
    if (shown++ == kShown) break;
    trace->notes.push_back(absl::StrCat("step ", step, " is left out: ", why));
  }
  trace->notes.push_back(absl::StrCat(trace->left_out.size(), " of ", all,
                                      " steps are left out, the figures are of ", trace->steps.size()));
}

void TakeGroups(const TraceRecords& records, Trace* trace) {
  const auto known = [trace](const std::pair<int, int>& place) {
    return place.first >= 0 && place.first < trace->dp_size && place.second >= 0 &&
           place.second < trace->pp_size;
  };
  for (const auto& [rank, place] : records.members()) {
    if (known(place)) trace->members[rank] = trace->Worker(place.first, place.second);
  }
  if (records.lagging().empty()) return;
  trace->lagging.assign(static_cast<size_t>(trace->workers()), -1);
  for (const auto& [place, rank] : records.lagging()) {
    if (known(place)) trace->lagging[trace->Worker(place.first, place.second)] = rank;
  }
}

}  // namespace

absl::StatusOr<Trace> BuildTrace(const TraceRecords& records, const JobShape& shape) {
  absl::StatusOr<TraceTable> table = TraceTable::Make(records, shape);
  if (!table.ok()) return table.status();
  Trace trace;
  trace.shape = shape;
  trace.dp_size = table->dp_size();
  trace.pp_size = table->pp_size();
  trace.ranks = table->ranks();
  trace.notes = table->notes();
  trace.single_precision = SinglePrecision(records);
  std::vector<size_t> complete;
  const StepJudge judge(*table, records);
  for (size_t step = 0; step < table->steps().size(); ++step) {
    std::string complaint = judge.Complaint(step);
    if (complaint.empty()) {
      complete.push_back(step);
      trace.steps.push_back(table->steps()[step]);
    } else {
      trace.left_out[table->steps()[step]] = std::move(complaint);
    }
  }
  for (const auto& [step, damage] : records.damaged()) {
    trace.left_out.try_emplace(step, damage.Sentence());
  }
  if (complete.empty()) return NoStep(trace);
  NoteLeftOut(complete.size() + trace.left_out.size(), &trace);
  LayOutTemplate(*table, complete.front(), &trace);
  trace.start_s.assign(trace.operations.size() * trace.lanes(), std::numeric_limits<double>::quiet_NaN());
  trace.duration_s.assign(trace.start_s.size(), 0);
  if (records.has_lags()) trace.lag_s.assign(trace.start_s.size(), 0);
  for (size_t i = 0; i < complete.size(); ++i) FillStep(*table, complete[i], i, &trace);
  TakeGroups(records, &trace);
  AddOwnTime(&trace);
  return trace;
}

}  // namespace c4::whatif
