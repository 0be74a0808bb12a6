#include "analysis/whatif/simulator.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "analysis/whatif/lane_plan.h"
#include "analysis/whatif/statistics.h"

namespace c4::whatif {
namespace {

// Lanes that go through the graph together: their ends of operations have to fit the processor's cache.
constexpr size_t kBatchLanes = 128;

// A step of a scenario: lanes [begin, end) of the batch, which wait for each other across data parallelism.
struct Item {
  uint32_t scenario = 0;
  uint32_t step = 0;
  size_t begin = 0;
  size_t end = 0;
};

void AddConstant(const double* from, double plus, size_t count, double* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] + plus;
}

void AddEach(const double* from, const float* plus, size_t count, double* to) {
  for (size_t i = 0; i < count; ++i) to[i] = from[i] + static_cast<double>(plus[i]);
}

void TakeLater(const double* other, size_t count, double* latest) {
  for (size_t i = 0; i < count; ++i) latest[i] = latest[i] > other[i] ? latest[i] : other[i];
}

// One thread's working memory.
class BatchRunner {
 public:
  BatchRunner(const Trace& trace, const Graph& graph, const Durations& durations)
      : trace_(trace), graph_(graph), durations_(durations) {}

  // Of steps that begin where the last one ended, worker by worker: [stage * lanes + lane]. The step's time
  // counts from the latest.
  struct Chain {
    std::vector<double> begins;
    std::vector<double> ends;
  };

  // One step behind another.
  void RunNext(const std::vector<Lane>& lanes, const Item& item, bool uniform, Chain* chain,
               std::vector<StepTimes>* answers) {
    chain_ = chain;
    chain->ends.assign(chain->begins.size(), -std::numeric_limits<double>::infinity());
    Run(lanes, {item}, uniform, answers);
    chain_ = nullptr;
  }

  // `uniform`: the lanes are consecutive lanes of the trace with one mask and one replacement.
  void Run(const std::vector<Lane>& lanes, const std::vector<Item>& items, bool uniform,
           std::vector<StepTimes>* answers) {
    const size_t count = lanes.size();
    ends_.resize(static_cast<size_t>(graph_.slot_count) * count);
    begin_.resize(count);
    optimizer_.assign(count, 0);
    last_.assign(count, 0);
    for (const Graph::Event& event : graph_.events) {
      const double* begin = Begin(event, items, count);
      for (const uint32_t operation : event.operations) {
        double* end = ends_.data() + static_cast<size_t>(graph_.slots[operation]) * count;
        if (uniform) {
          AddUniform(operation, lanes.front(), count, begin, end);
        } else {
          AddMixed(operation, lanes, begin, end);
        }
        TakeLater(end, count, last_.data());
        if (chain_ != nullptr) TakeLater(end, count, chain_->ends.data() + StageOf(operation) * count);
        if (graph_.ends_step[operation] != 0) TakeLater(end, count, optimizer_.data());
      }
    }
    for (const Item& item : items) {
      StepTimes& answer = (*answers)[item.scenario];
      answer.optimizer_s[item.step] = Latest(optimizer_, item);
      answer.last_s[item.step] = Latest(last_, item);
    }
  }

 private:
  // When the event's operations begin to take their time.
  const double* Begin(const Graph::Event& event, const std::vector<Item>& items, size_t count) {
    if (event.needs.empty()) {
      if (chain_ != nullptr) return chain_->begins.data() + StageOf(event.operations.front()) * count;
      std::fill(begin_.begin(), begin_.end(), 0.0);
      return begin_.data();
    }
    const auto end_of = [this, count](uint32_t operation) {
      return ends_.data() + static_cast<size_t>(graph_.slots[operation]) * count;
    };
    const double* first = end_of(event.needs.front());
    // A slot may be written in place by a single operation, not by several one after the other.
    if (event.needs.size() == 1 && event.operations.size() == 1 && !event.across_dp) return first;
    std::copy(first, first + count, begin_.begin());
    for (size_t i = 1; i < event.needs.size(); ++i) TakeLater(end_of(event.needs[i]), count, begin_.data());
    if (event.across_dp) {
      for (const Item& item : items) {
        const double latest = Latest(begin_, item);
        std::fill(begin_.begin() + static_cast<ptrdiff_t>(item.begin),
                  begin_.begin() + static_cast<ptrdiff_t>(item.end), latest);
      }
    }
    return begin_.data();
  }

  size_t StageOf(uint32_t operation) const { return static_cast<size_t>(trace_.operations[operation].stage); }

  static double Latest(const std::vector<double>& times, const Item& item) {
    double latest = times[item.begin];
    for (size_t i = item.begin + 1; i < item.end; ++i) latest = latest > times[i] ? latest : times[i];
    return latest;
  }

  void AddUniform(uint32_t operation, const Lane& lane, size_t count, const double* begin,
                  double* end) const {
    if ((*lane.recorded)[operation] == 0) {
      const OperationType type = trace_.operations[operation].type;
      const float plus_s = durations_.Replaced_s(operation, type, *lane.replacement);
      AddConstant(begin, static_cast<double>(plus_s), count, end);
    } else {
      AddEach(begin, durations_.recorded_s.data() + operation * trace_.lanes() + lane.lane, count, end);
    }
  }

  void AddMixed(uint32_t operation, const std::vector<Lane>& lanes, const double* begin, double* end) const {
    const OperationType type = trace_.operations[operation].type;
    const float* recorded_s = durations_.recorded_s.data() + operation * trace_.lanes();
    for (size_t i = 0; i < lanes.size(); ++i) {
      const Lane& lane = lanes[i];
      const float plus_s = (*lane.recorded)[operation] != 0
                               ? recorded_s[lane.lane]
                               : durations_.Replaced_s(operation, type, *lane.replacement);
      end[i] = begin[i] + static_cast<double>(plus_s);
    }
  }

  const Trace& trace_;
  const Graph& graph_;
  const Durations& durations_;
  Chain* chain_ = nullptr;
  std::vector<double> ends_;  // [slot][lane]
  std::vector<double> begin_;
  std::vector<double> optimizer_;
  std::vector<double> last_;
};

// The batches of a run, taken one after the other by any thread.
class Batches {
 public:
  Batches(const Trace& trace, const std::vector<Scenario>& scenarios) {
    for (const Scenario& scenario : scenarios)
      plans_.emplace_back(std::make_unique<LanePlan>(trace, scenario));
    size_t lanes = 0;
    for (uint32_t scenario = 0; scenario < scenarios.size(); ++scenario) {
      for (uint32_t step = 0; step < trace.steps.size(); ++step) {
        const size_t count = plans_[scenario]->LaneCount(step);
        const bool fits = !starts_.empty() && lanes + count <= kBatchLanes && SameKind({scenario, step});
        if (!fits) {
          starts_.push_back(parts_.size());
          lanes = 0;
        }
        parts_.push_back({scenario, step});
        lanes += count;
      }
    }
    starts_.push_back(parts_.size());
  }

  size_t size() const { return starts_.size() - 1; }

  bool Fill(size_t batch, std::vector<Lane>* lanes, std::vector<Item>* items) const {
    lanes->clear();
    items->clear();
    for (size_t i = starts_[batch]; i < starts_[batch + 1]; ++i) {
      const Part& part = parts_[i];
      const size_t begin = lanes->size();
      plans_[part.scenario]->Append(part.step, lanes);
      items->push_back({part.scenario, part.step, begin, lanes->size()});
    }
    return Uniform(parts_[starts_[batch]]) != nullptr;
  }

 private:
  struct Part {
    uint32_t scenario;
    uint32_t step;
  };

  const OperationMask* Uniform(const Part& part) const { return plans_[part.scenario]->Uniform(part.step); }

  // Either all lanes of a batch take the fast way or none.
  bool SameKind(const Part& part) const {
    const Part& last = parts_.back();
    const OperationMask* mask = Uniform(part);
    return mask == Uniform(last) && (mask == nullptr || last.scenario == part.scenario);
  }

  std::vector<std::unique_ptr<LanePlan>> plans_;
  std::vector<Part> parts_;
  std::vector<size_t> starts_;  // of each batch in parts_; one more at the end
};

}  // namespace

namespace {

// `work` takes numbers of tasks until they are over.
template <typename Work>
void Share(size_t tasks, int threads, const Work& work) {
  std::atomic<size_t> taken = 0;
  const auto one = [&] { work([&taken] { return taken++; }); };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads && static_cast<size_t>(i) < tasks; ++i) helpers.emplace_back(one);
  one();
  for (std::thread& helper : helpers) helper.join();
}

void RunChained(const Trace& trace, const Scenario& scenario, uint32_t number, BatchRunner* runner,
                std::vector<StepTimes>* answers) {
  const LanePlan plan(trace, scenario);
  // Ranks that share a lane in one step have to do so in the next: not where steps are chosen.
  const bool alike = plan.AllStepsAlike();
  const size_t count = alike ? plan.LaneCount(0) : static_cast<size_t>(trace.dp_size);
  BatchRunner::Chain chain;
  chain.begins.assign(static_cast<size_t>(trace.pp_size) * count, 0);
  std::vector<Lane> lanes;
  for (uint32_t step = 0; step < trace.steps.size(); ++step) {
    if (trace.follows[step] == 0) std::fill(chain.begins.begin(), chain.begins.end(), 0);
    lanes.clear();
    if (alike) {
      plan.Append(step, &lanes);
    } else {
      plan.AppendAll(step, &lanes);
    }
    const bool uniform = alike && plan.Uniform(step) != nullptr;
    runner->RunNext(lanes, {number, step, 0, count}, uniform, &chain, answers);
    const double latest = *std::max_element(chain.ends.begin(), chain.ends.end());
    for (size_t i = 0; i < chain.ends.size(); ++i) chain.begins[i] = chain.ends[i] - latest;
  }
}

}  // namespace

double StepTimes::MeanOptimizer_s() const {
  return Mean(optimizer_s);
}

double StepTimes::MeanLast_s() const {
  return Mean(last_s);
}

std::vector<StepTimes> Simulator::Run(const std::vector<Scenario>& scenarios, int threads) const {
  std::vector<StepTimes> answers(scenarios.size());
  for (StepTimes& answer : answers) {
    answer.optimizer_s.resize(trace_.steps.size());
    answer.last_s.resize(trace_.steps.size());
  }
  if (trace_.has_own_time()) {
    Share(scenarios.size(), threads, [&](const auto& next) {
      BatchRunner runner(trace_, graph_, durations_);
      for (size_t i = next(); i < scenarios.size(); i = next())
        RunChained(trace_, scenarios[i], static_cast<uint32_t>(i), &runner, &answers);
    });
    return answers;
  }
  const Batches batches(trace_, scenarios);
  Share(batches.size(), threads, [&](const auto& next) {
    BatchRunner runner(trace_, graph_, durations_);
    std::vector<Lane> lanes;
    std::vector<Item> items;
    for (size_t batch = next(); batch < batches.size(); batch = next()) {
      const bool uniform = batches.Fill(batch, &lanes, &items);
      runner.Run(lanes, items, uniform, &answers);
    }
  });
  return answers;
}

Simulator::Times Simulator::Replay(const Scenario& scenario, size_t step) const {
  const auto dp_size = static_cast<size_t>(trace_.dp_size);
  const LanePlan plan(trace_, scenario);
  std::vector<Lane> lanes;
  plan.AppendAll(step, &lanes);
  Times times;
  times.start_s.assign(trace_.operations.size() * dp_size, 0);
  times.end_s = times.start_s;
  for (const Graph::Event& event : graph_.events) {
    std::vector<double> begin_s(dp_size, 0);
    for (const uint32_t operation : event.operations) {
      for (size_t dp = 0; dp < dp_size; ++dp) {
        double& start_s = times.start_s[operation * dp_size + dp];
        for (const uint32_t need : graph_.needs[operation]) {
          start_s = std::max(start_s, times.end_s[need * dp_size + dp]);
        }
        begin_s[dp] = std::max(begin_s[dp], start_s);
      }
    }
    if (event.across_dp) {
      const double latest_s = *std::max_element(begin_s.begin(), begin_s.end());
      std::fill(begin_s.begin(), begin_s.end(), latest_s);
    }
    for (const uint32_t operation : event.operations) {
      const OperationType type = trace_.operations[operation].type;
      for (size_t dp = 0; dp < dp_size; ++dp) {
        const Lane& lane = lanes[dp];
        const float duration_s = (*lane.recorded)[operation] != 0
                                     ? durations_.recorded_s[operation * trace_.lanes() + lane.lane]
                                     : durations_.Replaced_s(operation, type, *lane.replacement);
        times.end_s[operation * dp_size + dp] = begin_s[dp] + static_cast<double>(duration_s);
      }
    }
  }
  return times;
}

}  // namespace c4::whatif
