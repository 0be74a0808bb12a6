#include "analysis/whatif/durations.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

constexpr double kClocksApart_s = 10e-3;

class Measurer {
 public:
  Measurer(const Trace& trace, const Graph& graph, Durations* durations)
      : trace_(trace), graph_(graph), durations_(*durations), last_start_s_(trace.lanes()) {}

  void Measure() {
    durations_.recorded_s = trace_.duration_s;
    for (const Graph::Event& event : graph_.events) {
      if (graph_.transfers[event.operations.front()] == 0) continue;
      FindLastStarts(event);
      for (const uint32_t operation : event.operations) Transfer(operation);
    }
    for (size_t t = 0; t < kOperationTypes; ++t) Idealise(static_cast<OperationType>(t));
    if (trace_.has_own_time()) FindUsualOwnTimes();
  }

 private:
  void FindLastStarts(const Graph::Event& event) {
    const size_t lanes = trace_.lanes();
    std::fill(last_start_s_.begin(), last_start_s_.end(), -std::numeric_limits<double>::infinity());
    for (const uint32_t operation : event.operations) {
      const double* start_s = trace_.start_s.data() + operation * lanes;
      for (size_t lane = 0; lane < lanes; ++lane)
        last_start_s_[lane] = std::max(last_start_s_[lane], start_s[lane]);
    }
    if (!event.across_dp) return;
    const auto dp_size = static_cast<size_t>(trace_.dp_size);
    for (size_t lane = 0; lane < lanes; lane += dp_size) {
      const auto first = last_start_s_.begin() + static_cast<ptrdiff_t>(lane);
      const auto end = first + static_cast<ptrdiff_t>(dp_size);
      std::fill(first, end, *std::max_element(first, end));
    }
  }

  void Transfer(uint32_t operation) {
    const size_t lanes = trace_.lanes();
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t at = operation * lanes + lane;
      const double end_s = trace_.End_s(trace_.start_s[at], trace_.duration_s[at]);
      double transfer_s = end_s - last_start_s_[lane];
      if (transfer_s <= -kClocksApart_s) {
        NoteNegative(operation, lane, transfer_s);
        transfer_s = 0;
      }
      durations_.recorded_s[at] = static_cast<float>(transfer_s);
    }
  }

  void NoteNegative(uint32_t operation, size_t lane, double transfer_s) {
    ++durations_.negative;
    if (transfer_s >= durations_.most_negative_s) return;
    durations_.most_negative_s = transfer_s;
    const TemplateOperation& which = trace_.operations[operation];
    const auto dp_size = static_cast<size_t>(trace_.dp_size);
    durations_.worst = absl::StrCat(OperationName(which.type), " ", which.index, " of rank ",
                                    trace_.Rank(static_cast<int>(lane % dp_size), which.stage), ", step ",
                                    trace_.steps[lane / dp_size]);
  }

  void Idealise(OperationType type) {
    const size_t lanes = trace_.lanes();
    std::vector<float> values;
    double sum_s = 0;
    size_t count = 0;
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      const size_t number = trace_.Count(stage, type) * lanes;
      if (number == 0) continue;
      const float* first = durations_.recorded_s.data() + trace_.Find(stage, type, 0) * lanes;
      count += number;
      if (IsCommunication(type)) {
        values.insert(values.end(), first, first + number);
      } else {
        for (size_t i = 0; i < number; ++i) sum_s += static_cast<double>(first[i]);
      }
    }
    if (count == 0) return;
    const double ideal_s = IsCommunication(type) ? Median(&values) : sum_s / static_cast<double>(count);
    durations_.counts[Index(type)] = count;
    durations_.ideal_exact_s[Index(type)] = ideal_s;
    durations_.ideal_s[Index(type)] = static_cast<float>(ideal_s);
  }

  // Of the usual data-parallel rank in the usual step.
  void FindUsualOwnTimes() {
    durations_.usual_own_s.assign(trace_.operations.size(), 0);
    const auto dp_size = static_cast<size_t>(trace_.dp_size);
    std::vector<double> of_ranks(dp_size);
    std::vector<float> of_steps;
    for (size_t operation = 0; operation < trace_.operations.size(); ++operation) {
      if (trace_.operations[operation].type != OperationType::kOwnTime) continue;
      for (size_t dp = 0; dp < dp_size; ++dp) {
        of_steps.clear();
        for (size_t lane = dp; lane < trace_.lanes(); lane += dp_size)
          of_steps.push_back(durations_.recorded_s[operation * trace_.lanes() + lane]);
        of_ranks[dp] = Median(&of_steps);
      }
      durations_.usual_own_s[operation] = static_cast<float>(LowerMedian(of_ranks));
    }
  }

  const Trace& trace_;
  const Graph& graph_;
  Durations& durations_;
  std::vector<double> last_start_s_;
};

}  // namespace

Durations MeasureDurations(const Trace& trace, const Graph& graph) {
  Durations durations;
  Measurer(trace, graph, &durations).Measure();
  return durations;
}

}  // namespace c4::whatif
