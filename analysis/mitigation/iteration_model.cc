#include "analysis/mitigation/iteration_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace c4::mitigation {
namespace {

bool IsAmount(double value) {
  return std::isfinite(value) && value >= 0;
}

bool IsShare(double share) {
  return share > 0 && share <= 1;
}

absl::Status CheckParts(const PlacedJob& job) {
  const auto nodes = static_cast<size_t>(job.nodes());
  if (!job.compute_factor.empty() && job.compute_factor.size() != static_cast<size_t>(job.workers())) {
    return absl::InvalidArgumentError("the number of compute factors is not that of the places");
  }
  for (const double factor : job.compute_factor) {
    if (std::isfinite(factor) && factor > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a place computes ", factor, " times as long: a positive number is needed"));
  }
  if (!job.node_share.empty() && job.node_share.size() != nodes) {
    return absl::InvalidArgumentError("the number of NIC shares is not that of the nodes");
  }
  for (const double share : job.node_share) {
    if (IsShare(share)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("of a NIC's speed ", share, " is left: a number above 0 and up to 1 is needed"));
  }
  for (const SlowLink& link : job.slow_links) {
    const int last = std::max(link.node_a, link.node_b);
    if (std::min(link.node_a, link.node_b) < 0 || static_cast<size_t>(last) >= nodes) {
      return absl::InvalidArgumentError(absl::StrCat("a link joins nodes ", link.node_a, " and ", link.node_b,
                                                     ", and the job has nodes 0 to ", nodes - 1));
    }
    if (link.node_a == link.node_b) {
      return absl::InvalidArgumentError(absl::StrCat("a link joins two nodes, not ", last, " and itself"));
    }
    if (IsShare(link.share)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("of a link's speed ", link.share, " is left: a number above 0 and up to 1 is needed"));
  }
  return absl::OkStatus();
}

// 1F1B: a stage runs `warm` forward passes ahead, then one backward pass after each forward one.
struct Operation {
  bool forward;
  int64_t micro_batch;
};

Operation OperationAt(int64_t index, int64_t warm, int64_t micro_batches) {
  if (index < warm) return {true, index};
  const int64_t steady = index - warm;
  if (steady < 2 * (micro_batches - warm)) {
    return steady % 2 == 0 ? Operation{true, warm + steady / 2} : Operation{false, steady / 2};
  }
  return {false, index - micro_batches};
}

}  // namespace

absl::Status CheckJob(const PlacedJob& job) {
  if (job.groups < 1 || job.stages.empty()) {
    return absl::InvalidArgumentError("a job has at least one data-parallel group and one pipeline stage");
  }
  if (static_cast<int64_t>(job.stages.size()) * job.groups > kMostWorkers) {
    return absl::InvalidArgumentError(absl::StrCat(job.stages.size(), " stages of ", job.groups,
                                                   " groups are more than ", kMostWorkers, " workers"));
  }
  if (job.places_per_node < 1) return absl::InvalidArgumentError("a node has at least one place");
  if (job.micro_batches.size() != static_cast<size_t>(job.groups)) {
    return absl::InvalidArgumentError("the number of micro-batches of each group is needed");
  }
  for (const int64_t count : job.micro_batches) {
    if (count >= 1 && count <= (1 << 16)) continue;
    return absl::InvalidArgumentError(absl::StrCat("a group computes 1 to 65536 micro-batches, not ", count));
  }
  for (const StageCost& cost : job.stages) {
    if (IsAmount(cost.forward_s) && IsAmount(cost.backward_s) && IsAmount(cost.gradient_bytes)) continue;
    return absl::InvalidArgumentError("the cost of a stage is no number, or a negative one");
  }
  if (!IsAmount(job.activation_bytes) || !IsAmount(job.state_bytes) || !IsAmount(job.latency_s)) {
    return absl::InvalidArgumentError("activations, state and latency have to be 0 or more");
  }
  if (!(IsAmount(job.node_bytes_per_s) && job.node_bytes_per_s > 0) ||
      !(IsAmount(job.inner_bytes_per_s) && job.inner_bytes_per_s > 0)) {
    return absl::InvalidArgumentError("links have to carry something: give their speed");
  }
  return CheckParts(job);
}

PlacedJob Healthy(PlacedJob job) {
  job.compute_factor.clear();
  job.node_share.clear();
  job.slow_links.clear();
  return job;
}

Placement UsualPlacement(const PlacedJob& job) {
  Placement placement(static_cast<size_t>(job.workers()));
  std::iota(placement.begin(), placement.end(), 0);
  return placement;
}

Placement PipelinePlacement(const PlacedJob& job) {
  const auto stages = static_cast<int>(job.stages.size());
  Placement placement;
  for (int worker = 0; worker < job.workers(); ++worker) {
    placement.push_back(worker % job.groups * stages + worker / job.groups);
  }
  return placement;
}

IterationModel::IterationModel(const PlacedJob& job)
    : job_(job), has_slow_link_(static_cast<size_t>(job.nodes()), false) {
  for (const SlowLink& link : job.slow_links) {
    if (link.share >= 1) continue;
    const auto key = std::minmax(link.node_a, link.node_b);
    const auto [at, added] = links_.emplace(std::pair<int, int>(key), link.share);
    if (!added) at->second = std::min(at->second, link.share);
    has_slow_link_[static_cast<size_t>(link.node_a)] = true;
    has_slow_link_[static_cast<size_t>(link.node_b)] = true;
  }
}

double IterationModel::BytesPerS(int from_place, int to_place) const {
  const int from = NodeOf(from_place);
  const int to = NodeOf(to_place);
  if (from == to) return job_.inner_bytes_per_s;
  double share = std::min(ShareOf(from), ShareOf(to));
  if (HasSlowLink(from) && HasSlowLink(to)) {
    const auto link = links_.find(std::pair<int, int>(std::minmax(from, to)));
    if (link != links_.end()) share = std::min(share, link->second);
  }
  return job_.node_bytes_per_s * share;
}

void IterationModel::Pipeline(const Placement& placement, int group, Scratch* scratch,
                              std::span<double> done_s) const {
  const size_t stages = job_.stages.size();
  const auto groups = static_cast<size_t>(job_.groups);
  const int64_t count = job_.micro_batches[static_cast<size_t>(group)];
  const auto width = static_cast<size_t>(count);
  constexpr double kNotYet = -1;
  scratch->forward_at.assign(stages * width, kNotYet);
  scratch->backward_at.assign(stages * width, kNotYet);
  std::fill_n(scratch->forward_at.begin(), width, 0.0);
  std::fill_n(scratch->backward_at.end() - static_cast<std::ptrdiff_t>(width), width, 0.0);
  scratch->free_s.assign(stages, 0);
  scratch->down_s.assign(stages, 0);  // until when the way to the next stage is taken
  scratch->up_s.assign(stages, 0);
  scratch->next.assign(stages, 0);
  const auto place = [&](size_t stage) { return placement[stage * groups + static_cast<size_t>(group)]; };
  const auto carry_s = [&](size_t from, size_t to) {
    return job_.activation_bytes / BytesPerS(place(from), place(to));
  };
  size_t open = stages;
  while (open > 0) {
    for (size_t stage = 0; stage < stages; ++stage) {
      const int64_t warm = std::min<int64_t>(static_cast<int64_t>(stages - 1 - stage), count);
      const double factor = FactorOf(place(stage));
      const double down_s = stage + 1 < stages ? carry_s(stage, stage + 1) : 0;
      const double up_s = stage > 0 ? carry_s(stage, stage - 1) : 0;
      int64_t& next = scratch->next[stage];
      if (next == 2 * count) continue;
      for (; next < 2 * count; ++next) {
        const Operation operation = OperationAt(next, warm, count);
        const size_t at = stage * width + static_cast<size_t>(operation.micro_batch);
        const double arrived_s = operation.forward ? scratch->forward_at[at] : scratch->backward_at[at];
        if (arrived_s == kNotYet) break;
        const StageCost& cost = job_.stages[stage];
        const double end_s = std::max(scratch->free_s[stage], arrived_s) +
                             factor * (operation.forward ? cost.forward_s : cost.backward_s);
        scratch->free_s[stage] = end_s;
        if (operation.forward && stage + 1 < stages) {
          scratch->down_s[stage] = std::max(scratch->down_s[stage], end_s) + down_s;
          scratch->forward_at[at + width] = scratch->down_s[stage] + job_.latency_s;
        } else if (!operation.forward && stage > 0) {
          scratch->up_s[stage] = std::max(scratch->up_s[stage], end_s) + up_s;
          scratch->backward_at[at - width] = scratch->up_s[stage] + job_.latency_s;
        }
      }
      if (next == 2 * count) --open;
    }
  }
  std::copy(scratch->free_s.begin(), scratch->free_s.end(), done_s.begin());
}

double IterationModel::Ring(const Placement& placement, int stage) const {
  const int groups = job_.groups;
  if (groups == 1) return 0;
  const int* const places = placement.data() + static_cast<ptrdiff_t>(stage) * groups;
  double slowest = std::numeric_limits<double>::infinity();
  for (int group = 0; group < groups; ++group) {
    slowest = std::min(slowest, BytesPerS(places[group], places[group + 1 < groups ? group + 1 : 0]));
  }
  const double steps = 2.0 * (groups - 1);
  return steps / groups * job_.stages[static_cast<size_t>(stage)].gradient_bytes / slowest +
         steps * job_.latency_s;
}

double IterationModel::Time(const Placement& placement) const {
  const size_t stages = job_.stages.size();
  std::vector<double> last_s(stages, 0);
  std::vector<double> done_s(stages);
  Scratch scratch;
  for (int group = 0; group < job_.groups; ++group) {
    Pipeline(placement, group, &scratch, done_s);
    for (size_t stage = 0; stage < stages; ++stage) last_s[stage] = std::max(last_s[stage], done_s[stage]);
  }
  double time_s = 0;
  for (size_t stage = 0; stage < stages; ++stage) {
    time_s = std::max(time_s, last_s[stage] + Ring(placement, static_cast<int>(stage)));
  }
  return time_s;
}

double IterationModel::SwapTime(const Placement& before, const Placement& after) const {
  double longest_s = 0;
  for (size_t worker = 0; worker < before.size(); ++worker) {
    if (before[worker] == after[worker]) continue;
    longest_s = std::max(longest_s, job_.state_bytes / BytesPerS(before[worker], after[worker]));
  }
  return longest_s;
}

}  // namespace c4::mitigation
