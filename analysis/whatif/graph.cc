#include "analysis/whatif/graph.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "analysis/whatif/pipeline_links.h"

namespace c4::whatif {
namespace {

using Operations = std::vector<uint32_t>;

class Builder {
 public:
  explicit Builder(const Trace& trace) : trace_(trace), needs_(trace.operations.size()) {}

  absl::StatusOr<Graph> Build() {
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      computes_.push_back(Merged(stage, {OperationType::kForwardCompute, OperationType::kBackwardCompute}));
      if (computes_.back().empty()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "stage ", stage,
            " has no forward-compute and backward-compute operations: record those of every worker"));
      }
      if (trace_.has_own_time()) {
        Program(stage);
        continue;
      }
      Streams(stage);
      ParamsBeforeForward(stage);
      FirstBackwardTransfer(stage);
      AfterCompute(stage);
    }
    const absl::StatusOr<PipelineLinks> links = LinkPipeline(trace_);
    if (!links.ok()) return links.status();
    Pipeline(*links);
    Groups(*links);
    Graph graph;
    graph.needs = std::move(needs_);
    graph.transfers.assign(trace_.operations.size(), 0);
    for (uint32_t i = 0; i < trace_.operations.size(); ++i)
      graph.transfers[i] = Transfers(At(i).type) ? 1 : 0;
    const absl::Status ordered = Order(&graph);
    if (!ordered.ok()) return ordered;
    MarkEnds(&graph);
    AssignSlots(&graph);
    return graph;
  }

 private:
  // The all-reduce of layer norms stays within a tensor group, of which the trace shows one rank.
  static bool Transfers(OperationType type) {
    return IsCommunication(type) && type != OperationType::kLayernormGradsAllReduce;
  }

  const TemplateOperation& At(uint32_t operation) const { return trace_.operations[operation]; }

  Operations Merged(int stage, std::initializer_list<OperationType> types) const {
    Operations operations;
    for (const OperationType type : types) {
      for (size_t i = 0; i < trace_.Count(stage, type); ++i) {
        operations.push_back(static_cast<uint32_t>(trace_.Find(stage, type, i)));
      }
    }
    SortByStart(trace_, &operations);
    return operations;
  }

  // In order of sequence.
  Operations Sequence(int stage, OperationType type) const {
    Operations operations(trace_.Count(stage, type));
    std::iota(operations.begin(), operations.end(), static_cast<uint32_t>(trace_.Find(stage, type, 0)));
    return operations;
  }

  void Need(uint32_t operation, uint32_t need) { needs_[operation].push_back(need); }

  void Chain(const Operations& operations) {
    for (size_t i = 1; i < operations.size(); ++i) Need(operations[i], operations[i - 1]);
  }

  // What the program waited for, instead of what a framework on GPUs is known to wait for.
  void Program(int stage) {
    const Operations& order = trace_.program[static_cast<size_t>(stage)];
    const auto& needs = trace_.program_needs[static_cast<size_t>(stage)];
    const Operations collections = Sequence(stage, OperationType::kGc);
    const std::vector<size_t>& before = trace_.program_gc[static_cast<size_t>(stage)];
    Chain(collections);
    for (size_t i = 0; i < order.size(); ++i) {
      const auto own = static_cast<uint32_t>(trace_.Find(stage, OperationType::kOwnTime, i));
      Need(order[i], own);
      for (const uint32_t need : needs[i]) Need(own, need);
    }
    for (size_t i = 0; i < collections.size(); ++i) {
      for (const uint32_t need : needs[before[i]]) Need(collections[i], need);
      Need(static_cast<uint32_t>(trace_.Find(stage, OperationType::kOwnTime, before[i])), collections[i]);
    }
  }

  // What a stream runs, it runs one after the other: computation, communication of data parallelism, and each
  // of the four kinds of transfers between stages.
  void Streams(int stage) {
    Chain(computes_.back());
    Chain(Merged(stage, {OperationType::kParamsAllGather, OperationType::kGradsReduceScatter}));
    for (const OperationType type : {OperationType::kForwardSend, OperationType::kForwardRecv,
                                     OperationType::kBackwardSend, OperationType::kBackwardRecv}) {
      Chain(Merged(stage, {type}));
    }
  }

  // The last all-gather of a model chunk comes before that chunk's first forward computation.
  void ParamsBeforeForward(int stage) {
    std::vector<int> done;
    Operations gathers = Sequence(stage, OperationType::kParamsAllGather);
    std::reverse(gathers.begin(), gathers.end());
    for (const uint32_t gather : gathers) {
      const int chunk = At(gather).chunk;
      if (std::find(done.begin(), done.end(), chunk) != done.end()) continue;
      done.push_back(chunk);
      for (const uint32_t compute : computes_.back()) {
        if (At(compute).type != OperationType::kForwardCompute) continue;
        if (chunk >= 0 && At(compute).chunk >= 0 && At(compute).chunk != chunk) continue;
        Need(compute, gather);
        break;
      }
    }
  }

  // Gradients that are reduced while the backward pass goes on: the first scatter of a model chunk waits for
  // that chunk's last backward computation.
  void BackwardBeforeScatter(int stage) {
    std::vector<int> done;
    for (const uint32_t scatter : Sequence(stage, OperationType::kGradsReduceScatter)) {
      const int chunk = At(scatter).chunk;
      if (std::find(done.begin(), done.end(), chunk) != done.end()) continue;
      done.push_back(chunk);
      const uint32_t* last = nullptr;
      for (const uint32_t& compute : computes_.back()) {
        if (At(compute).type != OperationType::kBackwardCompute) continue;
        if (chunk >= 0 && At(compute).chunk >= 0 && At(compute).chunk != chunk) continue;
        if (last == nullptr || At(compute).end_s > At(*last).end_s) last = &compute;
      }
      if (last != nullptr) Need(scatter, *last);
    }
  }

  // The framework launches the first transfer of the backward pass behind the forward computation that comes
  // second before the first backward one. Whatever comes before that is a forward one; where there are not
  // two, as on the last stage, nothing is waited for.
  void FirstBackwardTransfer(int stage) {
    const Operations& computes = computes_.back();
    size_t first = 0;
    while (first < computes.size() && At(computes[first]).type != OperationType::kBackwardCompute) ++first;
    if (first < 2 || first == computes.size()) return;
    for (const OperationType type : {OperationType::kBackwardRecv, OperationType::kBackwardSend}) {
      if (trace_.Count(stage, type) == 0) continue;
      Need(static_cast<uint32_t>(trace_.Find(stage, type, 0)), computes[first - 2]);
    }
  }

  // What follows the last computation, one after the other; what the trace does not have is passed over.
  void AfterCompute(int stage) {
    uint32_t last = computes_.back().front();
    for (const uint32_t compute : computes_.back()) {
      if (At(compute).end_s > At(last).end_s) last = compute;
    }
    Operations tail = {last};
    const auto add = [&](OperationType type) {
      const Operations operations = Sequence(stage, type);
      tail.insert(tail.end(), operations.begin(), operations.end());
    };
    add(OperationType::kGc);
    const Operations scatters = Sequence(stage, OperationType::kGradsReduceScatter);
    const bool overlapped = Overlapped();
    const size_t before = tail.size();
    add(OperationType::kLayernormGradsAllReduce);
    add(OperationType::kEmbeddingGradsAllReduce);
    if (overlapped) {
      BackwardBeforeScatter(stage);
      add(OperationType::kSeparateGradsAllReduce);
    } else {
      add(OperationType::kGradsReduceScatter);
    }
    add(OperationType::kOptimizerClipMainGrad);
    add(OperationType::kOptimizer);
    Chain(tail);
    if (overlapped && !scatters.empty() && tail.size() > before) Need(tail[before], scatters.back());
  }

  bool Overlapped() const {
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      if (trace_.Count(stage, OperationType::kSeparateGradsAllReduce) > 0) return true;
    }
    return false;
  }

  void Pipeline(const PipelineLinks& links) {
    for (const auto& [end, compute] : links.computations) {
      if (IsSend(At(end).type)) {
        Need(end, compute);
        continue;
      }
      Need(compute, end);
      if (At(compute).index > 0 && !trace_.has_own_time()) Need(end, compute - 1);
    }
  }

  void Groups(const PipelineLinks& links) {
    group_of_.assign(trace_.operations.size(), kNone);
    for (const auto& [send, recv] : links.transfers) AddGroup({send, recv});
    Operations embedding;
    Operations clip;
    for (int stage = 0; stage < trace_.pp_size; ++stage) {
      const Operations here = Sequence(stage, OperationType::kEmbeddingGradsAllReduce);
      embedding.insert(embedding.end(), here.begin(), here.end());
      const Operations clips = Sequence(stage, OperationType::kOptimizerClipMainGrad);
      clip.insert(clip.end(), clips.begin(), clips.end());
    }
    GroupByIndex(embedding);
    GroupByIndex(clip);
    for (uint32_t i = 0; i < trace_.operations.size(); ++i) {
      if (group_of_[i] == kNone) AddGroup({i});
    }
  }

  void GroupByIndex(const Operations& operations) {
    for (int index = 0;; ++index) {
      Operations group;
      for (const uint32_t operation : operations) {
        if (At(operation).index == index) group.push_back(operation);
      }
      if (group.empty()) return;
      AddGroup(group);
    }
  }

  void AddGroup(const Operations& operations) {
    for (const uint32_t operation : operations) group_of_[operation] = static_cast<uint32_t>(groups_.size());
    groups_.push_back(operations);
  }

  // Kahn's algorithm over groups.
  absl::Status Order(Graph* graph) {
    std::vector<Operations> needs(groups_.size());
    std::vector<Operations> waiters(groups_.size());
    std::vector<uint32_t> open(groups_.size());
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      for (const uint32_t operation : groups_[group]) {
        needs[group].insert(needs[group].end(), graph->needs[operation].begin(),
                            graph->needs[operation].end());
      }
      std::sort(needs[group].begin(), needs[group].end());
      needs[group].erase(std::unique(needs[group].begin(), needs[group].end()), needs[group].end());
      for (const uint32_t need : needs[group]) {
        waiters[group_of_[need]].push_back(group);
        ++open[group];
      }
    }
    Operations ready;
    for (uint32_t group = 0; group < groups_.size(); ++group) {
      if (open[group] == 0) ready.push_back(group);
    }
    graph->event_of.resize(trace_.operations.size());
    for (size_t at = 0; at < ready.size(); ++at) {
      const uint32_t group = ready[at];
      for (const uint32_t operation : groups_[group]) {
        graph->event_of[operation] = static_cast<uint32_t>(graph->events.size());
      }
      const bool across_dp = SynchronisesDataParallel(At(groups_[group].front()).type);
      graph->events.push_back({groups_[group], needs[group], across_dp});
      for (const uint32_t waiter : waiters[group]) {
        if (--open[waiter] == 0) ready.push_back(waiter);
      }
    }
    if (ready.size() == groups_.size()) return absl::OkStatus();
    uint32_t stuck = 0;
    while (open[stuck] == 0) ++stuck;
    const TemplateOperation& one = At(groups_[stuck].front());
    return absl::FailedPreconditionError(
        absl::StrCat("the recorded order of step ", trace_.steps.front(),
                     ", dp_rank 0 cannot be: operations wait for each other in a ", "ring (",
                     OperationName(one.type), " ", one.index, " of stage ", one.stage,
                     " is one of those that never start); look at clocks and seq_id of that step, or leave "
                     "it out with --steps"));
  }

  void MarkEnds(Graph* graph) const {
    graph->ends_step.assign(trace_.operations.size(), 0);
    bool any = false;
    for (uint32_t i = 0; i < trace_.operations.size(); ++i) {
      graph->ends_step[i] = At(i).type == OperationType::kOptimizer ? 1 : 0;
      any = any || graph->ends_step[i] != 0;
    }
    if (!any) std::fill(graph->ends_step.begin(), graph->ends_step.end(), 1);
  }

  void AssignSlots(Graph* graph) const {
    std::vector<size_t> last_use(trace_.operations.size(), 0);
    for (size_t event = 0; event < graph->events.size(); ++event) {
      for (const uint32_t need : graph->events[event].needs) last_use[need] = event;
    }
    graph->slots.resize(trace_.operations.size());
    std::vector<uint32_t> free;
    for (size_t event = 0; event < graph->events.size(); ++event) {
      for (const uint32_t need : graph->events[event].needs) {
        if (last_use[need] == event) free.push_back(graph->slots[need]);
      }
      for (const uint32_t operation : graph->events[event].operations) {
        if (free.empty()) free.push_back(graph->slot_count++);
        graph->slots[operation] = free.back();
        free.pop_back();
      }
      for (const uint32_t operation : graph->events[event].operations) {
        if (last_use[operation] <= event) free.push_back(graph->slots[operation]);  // nobody waits for it
      }
    }
  }

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  const Trace& trace_;
  std::vector<Operations> needs_;
  std::vector<Operations> computes_;  // per stage
  std::vector<Operations> groups_;
  std::vector<uint32_t> group_of_;
};

}  // namespace

absl::StatusOr<Graph> BuildGraph(const Trace& trace) {
  return Builder(trace).Build();
}

}  // namespace c4::whatif
