// How long an iteration of a hybrid-parallel job takes in the model, wherever its workers are placed: 1F1B
// pipelines, replayed operation by operation, then the gradients of each stage around a ring. For S3, which
// looks for a better placement (placement_search.h).
//
// A worker is a pipeline stage of a data-parallel group (its tensor-parallel ranks, which are never parted);
// worker = stage * groups + group, as Megatron numbers ranks. A place is where one can run; places of a node
// are numbered one after the other. What the model leaves out: transfers that share a NIC, gradients that are
// reduced while the backward pass still computes, chunks of interleaved pipelines.
//
// Pure; any thread may call const methods at the same time, each with a scratch of its own.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace c4::mitigation {

// Of one micro-batch in one stage.
struct StageCost {
  double forward_s = 0;
  double backward_s = 0;
  double gradient_bytes = 0;  // that a worker reduces with the other groups' in each iteration
};

// Between two nodes, both directions. `share`: how much of its speed is left, 1: all.
struct SlowLink {
  int node_a = 0;
  int node_b = 0;
  double share = 1;
};

struct PlacedJob {
  int groups = 1;
  int places_per_node = 1;
  std::vector<StageCost> stages;
  std::vector<int64_t> micro_batches;  // by group
  double activation_bytes = 0;         // of a micro-batch, from stage to stage
  double state_bytes = 0;              // parameters and optimizer state of a worker
  double node_bytes_per_s = 0;         // from a place to one on another node
  double inner_bytes_per_s = 0;        // to one on the same node
  double latency_s = 0;                // of each message
  std::vector<double> compute_factor;  // by place: how many times as long as usual; empty: 1 everywhere
  std::vector<double> node_share;      // by node: what is left of its NIC's speed; empty: all
  std::vector<SlowLink> slow_links;

  int workers() const { return static_cast<int>(stages.size()) * groups; }
  int nodes() const { return (workers() + places_per_node - 1) / places_per_node; }
};

inline constexpr int kMostWorkers = 1 << 17;

// InvalidArgument with a sentence.
absl::Status CheckJob(const PlacedJob& job);
// The same job with nothing slow in it.
PlacedJob Healthy(PlacedJob job);

// Place by worker.
using Placement = std::vector<int>;
// Worker w in place w: the groups of a stage side by side.
Placement UsualPlacement(const PlacedJob& job);
// The stages of a group side by side.
Placement PipelinePlacement(const PlacedJob& job);

class IterationModel {
 public:
  // REQUIRES: CheckJob is content. The job outlives the model.
  explicit IterationModel(const PlacedJob& job);

  struct Scratch {
    std::vector<double> forward_at, backward_at;  // when an input arrives, by stage and micro-batch
    std::vector<double> free_s, down_s, up_s;
    std::vector<int64_t> next;
  };

  // When each stage of the group has done its last backward pass; `done_s` by stage.
  void Pipeline(const Placement& placement, int group, Scratch* scratch, std::span<double> done_s) const;
  // How long a stage's gradients go around.
  double Ring(const Placement& placement, int stage) const;
  // Of all.
  double Time(const Placement& placement) const;
  // Until all workers of `after` have the state that they have in `before`: all transfers at once.
  double SwapTime(const Placement& before, const Placement& after) const;

  const PlacedJob& job() const { return job_; }
  int NodeOf(int place) const { return place / job_.places_per_node; }
  double FactorOf(int place) const {
    return job_.compute_factor.empty() ? 1 : job_.compute_factor[static_cast<size_t>(place)];
  }
  double ShareOf(int node) const {
    return job_.node_share.empty() ? 1 : job_.node_share[static_cast<size_t>(node)];
  }
  // It is an end of a slow link.
  bool HasSlowLink(int node) const { return has_slow_link_[static_cast<size_t>(node)]; }
  double BytesPerS(int from_place, int to_place) const;

 private:
  const PlacedJob& job_;
  std::vector<bool> has_slow_link_;              // by node
  std::map<std::pair<int, int>, double> links_;  // the lower node first
};

}  // namespace c4::mitigation
