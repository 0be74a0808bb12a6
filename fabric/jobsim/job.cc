#include "fabric/jobsim/job.h"

#include <algorithm>
#include <array>
#include <set>

#include "fabric/jobsim/dice.h"

namespace c4::jobsim {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultKind::kCount)> kNames = {
    "none",         "spin",          "data-loader",  "file-system", "kill",     "launched",  "off-bus",
    "stop",         "mismatch",      "stuck-inside", "lost-node",   "slow-gpu", "slow-node", "slow-tensor",
    "slow-several", "slow-nvlink",   "slow-nic",     "lossy-nic",   "dead-nic", "pfc-storm", "slow-spine",
    "dead-spine",   "agent-restart", "agent-stall",  "clock-step"};

}  // namespace

std::string_view FaultName(FaultKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<FaultKind> FaultOf(std::string_view name) {
  const auto at = std::find(kNames.begin(), kNames.end(), name);
  if (at == kNames.end()) return std::nullopt;
  return static_cast<FaultKind>(at - kNames.begin());
}

std::string_view LauncherName(Launcher launcher) {
  constexpr std::array<std::string_view, 4> kLaunchers = {"none", "torchrun", "srun", "mpirun"};
  return kLaunchers[static_cast<size_t>(launcher)];
}

std::vector<uint32_t> SlowRanks(const Shape& shape, const Fault& fault) {
  std::set<uint32_t> ranks;
  for (uint32_t rank = 0; rank < shape.ranks(); ++rank) {
    const bool slow =
        (fault.kind == FaultKind::kSlowGpu && rank == fault.rank) ||
        (fault.kind == FaultKind::kSlowNode && shape.node(rank) == shape.node(fault.rank)) ||
        (fault.kind == FaultKind::kSlowTensor && rank / shape.tensor == fault.rank / shape.tensor);
    if (slow) ranks.insert(rank);
  }
  if (fault.kind == FaultKind::kSlowSeveral) {
    for (uint32_t i = 0; i < fault.count; ++i) {
      ranks.insert(static_cast<uint32_t>((fault.rank + (i == 0 ? 0 : Mix({fault.rank, i}))) % shape.ranks()));
    }
  }
  return {ranks.begin(), ranks.end()};
}

}  // namespace c4::jobsim
