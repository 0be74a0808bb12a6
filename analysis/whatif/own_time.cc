#include "analysis/whatif/own_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/whatif/pipeline_links.h"

namespace c4::whatif {
namespace {

constexpr double kAtOnce_s = 1e-6;    // durations have single precision
constexpr size_t kMayDiffer = 20;     // of so many lanes one
constexpr size_t kMostBeside = 1024;  // operations that run beside each other
constexpr double kBetween = 0.05;     // of a step: what a program does between two that follow each other

class OwnTimes {
 public:
  explicit OwnTimes(Trace* trace) : trace_(*trace), lanes_(trace->lanes()) {}

  void Add() {
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      if (trace_.Count(stage, OperationType::kOwnTime) != 1) return;
    }
    MeasureSteps();
    for (int stage = 0; stage < trace_.pp_size; ++stage) Plan(stage);
    Rebuild();
  }

 private:
  struct Planned {
    uint32_t operation = 0;
    std::vector<uint32_t> needs;
    std::vector<float> own_s;  // by lane
  };

  double Start_s(size_t operation, size_t lane) const { return trace_.start_s[operation * lanes_ + lane]; }
  double End_s(size_t operation, size_t lane) const {
    return trace_.End_s(Start_s(operation, lane), trace_.duration_s[operation * lanes_ + lane]);
  }
  size_t Began(int stage) const { return trace_.Find(stage, OperationType::kOwnTime, 0); }

  // When a worker's step is over.
  double LastEnd_s(int stage, size_t lane) const {
    double last_s = -std::numeric_limits<double>::infinity();
    for (size_t i = trace_.Find(stage, OperationType::kBackwardCompute, 0); i <= Began(stage); ++i) {
      if (!std::isnan(Start_s(i, lane))) last_s = std::max(last_s, End_s(i, lane));
    }
    return last_s;
  }

  // A step that follows another begins for each worker where the other ended, and takes from its last end to
  // that of this one.
  void MeasureSteps() {
    const auto dp_size = static_cast<size_t>(trace_.dp_size);
    const size_t steps = trace_.steps.size();
    std::vector<double> longest_s(steps);  // of any worker
    std::vector<double> between_s(steps);  // the longest of any worker
    std::vector<double> last_end_s(steps, -std::numeric_limits<double>::infinity());
    std::vector<double> ends_s(static_cast<size_t>(trace_.pp_size) * lanes_);
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      for (size_t lane = 0; lane < lanes_; ++lane) {
        const size_t step = lane / dp_size;
        double* const end_s = &ends_s[static_cast<size_t>(stage) * lanes_ + lane];
        *end_s = LastEnd_s(stage, lane);
        const double began_s = Start_s(Began(stage), lane);
        last_end_s[step] = std::max(last_end_s[step], *end_s);
        longest_s[step] = std::max(longest_s[step], *end_s - began_s);
        if (step > 0) between_s[step] = std::max(between_s[step], began_s - *(end_s - dp_size));
      }
    }
    trace_.follows.assign(steps, 0);
    for (size_t step = 0; step < steps; ++step) {
      const bool follows = step > 0 && trace_.steps[step] == trace_.steps[step - 1] + 1 &&
                           between_s[step] < kBetween * longest_s[step];
      trace_.follows[step] = follows ? 1 : 0;
      trace_.measured_step_s[step] = follows ? last_end_s[step] - last_end_s[step - 1] : longest_s[step];
      if (!follows) continue;
      for (int stage = 0; stage < trace_.pp_size; ++stage) {
        for (size_t lane = step * dp_size; lane < (step + 1) * dp_size; ++lane) {
          trace_.start_s[Began(stage) * lanes_ + lane] =
              ends_s[static_cast<size_t>(stage) * lanes_ + lane - dp_size];
        }
      }
    }
  }

  // Whether `before` is over when `after` begins: in the lane that the order is taken from, and nearly
  // always.
  bool IsOver(uint32_t before, uint32_t after) const {
    size_t late = 0;
    for (size_t lane = 0; lane < lanes_; ++lane) {
      if (End_s(before, lane) <= Start_s(after, lane) + kAtOnce_s) continue;
      if (lane == 0 || ++late * kMayDiffer > lanes_) return false;
    }
    return true;
  }

  void Plan(int stage) {
    std::vector<uint32_t> order;
    std::vector<uint32_t> collections;
    for (size_t i = trace_.Find(stage, OperationType::kBackwardCompute, 0); i < Began(stage); ++i) {
      (trace_.operations[i].type == OperationType::kGc ? collections : order)
          .push_back(static_cast<uint32_t>(i));
    }
    SortByStart(trace_, &order);
    std::vector<Planned>& planned = planned_.emplace_back();
    std::vector<uint32_t> beside;  // nobody has waited for these yet
    for (size_t k = 0; k < order.size(); ++k) {
      Planned next;
      next.operation = order[k];
      size_t before = k;
      const size_t least = k - std::min(k, kMostBeside);
      while (before > least && !IsOver(order[before - 1], order[k])) --before;
      const bool any = before > least;
      if (any) next.needs.push_back(order[before - 1]);
      if (k > 0 && before < k && !IsSend(trace_.operations[order[k - 1]].type))
        beside.push_back(order[k - 1]);
      std::erase_if(beside, [&](uint32_t one) {
        if (!IsOver(one, order[k])) return false;
        next.needs.push_back(one);
        return true;
      });
      next.own_s = OwnTime(stage, next, collections);
      planned.push_back(std::move(next));
    }
    std::vector<size_t>& before = trace_.program_gc.emplace_back();
    for (const uint32_t gc : collections) before.push_back(FirstBehind(gc, order));
  }

  // Where it stands in a lane that has it; the last operation where none begins behind it.
  size_t FirstBehind(uint32_t gc, const std::vector<uint32_t>& order) const {
    size_t lane = 0;
    while (lane < lanes_ && std::isnan(Start_s(gc, lane))) ++lane;
    size_t i = 0;
    while (lane < lanes_ && i + 1 < order.size() && Start_s(order[i], lane) < Start_s(gc, lane)) ++i;
    return i;
  }

  std::vector<float> OwnTime(int stage, const Planned& next, const std::vector<uint32_t>& collections) const {
    std::vector<float> own_s(lanes_);
    for (size_t lane = 0; lane < lanes_; ++lane) {
      double ready_s = Start_s(Began(stage), lane);
      for (const uint32_t need : next.needs) ready_s = std::max(ready_s, End_s(need, lane));
      const double start_s = Start_s(next.operation, lane);
      double own = start_s - ready_s;
      for (const uint32_t gc : collections) {  // an operation of its own
        const bool within = Start_s(gc, lane) >= ready_s - kAtOnce_s && Start_s(gc, lane) < start_s;
        if (within) own -= static_cast<double>(trace_.duration_s[gc * lanes_ + lane]);
      }
      own_s[lane] = static_cast<float>(std::max(0.0, own));
    }
    return own_s;
  }

  // The operations again, with those of own time behind the others of their stage.
  void Rebuild() {
    Trace old = trace_;
    trace_.operations.clear();
    trace_.first_of.clear();
    trace_.start_s.clear();
    trace_.duration_s.clear();
    trace_.lag_s.clear();
    std::vector<uint32_t> now(old.operations.size());
    const auto copy = [&](auto* into, const auto& from, size_t operation) {
      const auto first = from.begin() + static_cast<ptrdiff_t>(operation * lanes_);
      into->insert(into->end(), first, first + static_cast<ptrdiff_t>(lanes_));
    };
    for (int stage = 0; stage < old.pp_size; ++stage) {
      for (size_t t = 0; t < Index(OperationType::kOwnTime); ++t) {
        const auto type = static_cast<OperationType>(t);
        trace_.first_of.push_back(trace_.operations.size());
        for (size_t i = 0; i < old.Count(stage, type); ++i) {
          const size_t operation = old.Find(stage, type, i);
          now[operation] = static_cast<uint32_t>(trace_.operations.size());
          trace_.operations.push_back(old.operations[operation]);
          copy(&trace_.start_s, old.start_s, operation);
          copy(&trace_.duration_s, old.duration_s, operation);
          if (!old.lag_s.empty()) copy(&trace_.lag_s, old.lag_s, operation);
        }
      }
      trace_.first_of.push_back(trace_.operations.size());
      AddStage(stage, old);
    }
    trace_.first_of.push_back(trace_.operations.size());
    for (size_t stage = 0; stage < planned_.size(); ++stage) {
      std::vector<uint32_t>& order = trace_.program.emplace_back();
      std::vector<std::vector<uint32_t>>& needs = trace_.program_needs.emplace_back();
      for (const Planned& planned : planned_[stage]) {
        order.push_back(now[planned.operation]);
        std::vector<uint32_t>& of_one = needs.emplace_back();
        for (const uint32_t need : planned.needs) of_one.push_back(now[need]);
      }
    }
  }

  void AddStage(int stage, const Trace& old) {
    const std::vector<Planned>& planned = planned_[static_cast<size_t>(stage)];
    for (size_t i = 0; i < planned.size(); ++i) {
      const TemplateOperation& next = old.operations[planned[i].operation];
      TemplateOperation own;
      own.type = OperationType::kOwnTime;
      own.stage = stage;
      own.index = static_cast<int>(i);
      own.end_s = next.start_s;
      own.start_s = next.start_s - static_cast<double>(planned[i].own_s.front());
      trace_.operations.push_back(own);
      for (size_t lane = 0; lane < lanes_; ++lane) {
        const float own_s = planned[i].own_s[lane];
        trace_.start_s.push_back(old.start_s[planned[i].operation * lanes_ + lane] -
                                 static_cast<double>(own_s));
        trace_.duration_s.push_back(own_s);
      }
      if (!old.lag_s.empty()) trace_.lag_s.insert(trace_.lag_s.end(), lanes_, 0);
    }
  }

  Trace& trace_;
  const size_t lanes_;
  std::vector<std::vector<Planned>> planned_;  // [stage], in order
};

}  // namespace

void AddOwnTime(Trace* trace) {
  OwnTimes(trace).Add();
}

}  // namespace c4::whatif
