#include "traces/kineto_launches.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace c4::traces {
namespace {

constexpr size_t kNone = SIZE_MAX;

template <size_t kSize>
bool IsOneOf(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool IsLaunch(std::string_view category) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "privateuse1_runtime", "Runtime"};
  return IsOneOf(kNames, category);
}

bool IsGpuWork(std::string_view category) {
  static constexpr std::array<std::string_view, 6> kNames = {"kernel", "gpu_memcpy", "gpu_memset",
                                                             "Kernel", "Memcpy",     "Memset"};
  return IsOneOf(kNames, category);
}

bool IsOnGpu(std::string_view category) {
  return category.starts_with("gpu_") || IsGpuWork(category);
}

void KinetoLaunches::AddLaunch(uint32_t thread, uint64_t correlation, int64_t at_ns) {
  launches_.try_emplace(correlation, Launch{at_ns, thread});
}

void KinetoLaunches::AddKernel(uint64_t correlation, TimeSpan time) {
  const auto [known, fresh] = kernels_.try_emplace(correlation, time);
  if (fresh) return;
  known->second.start_ns = std::min(known->second.start_ns, time.start_ns);
  known->second.end_ns = std::max(known->second.end_ns, time.end_ns);
}

// One pass over time, in which every thread has a stack of the ranges that are open.
std::vector<std::optional<TimeSpan>> KinetoLaunches::SpansOf(const std::vector<Range>& ranges) const {
  std::vector<std::optional<TimeSpan>> spans(ranges.size());
  std::vector<size_t> by_start(ranges.size());
  std::iota(by_start.begin(), by_start.end(), size_t{0});
  // Of two that begin together the longer one is around the other.
  std::sort(by_start.begin(), by_start.end(), [&ranges](size_t a, size_t b) {
    const TimeSpan& first = ranges[a].time;
    const TimeSpan& second = ranges[b].time;
    return std::pair(first.start_ns, second.end_ns) < std::pair(second.start_ns, first.end_ns);
  });
  std::vector<std::pair<Launch, TimeSpan>> launches;  // with the kernels'
  for (const auto& [correlation, launch] : launches_) {
    const auto kernel = kernels_.find(correlation);
    if (kernel != kernels_.end()) launches.emplace_back(launch, kernel->second);
  }
  std::sort(launches.begin(), launches.end(),
            [](const auto& a, const auto& b) { return a.first.at_ns < b.first.at_ns; });
  std::unordered_map<uint32_t, std::vector<size_t>> open;
  auto next = by_start.begin();
  for (const auto& [launch, kernel] : launches) {
    for (; next != by_start.end() && ranges[*next].time.start_ns <= launch.at_ns; ++next) {
      open[ranges[*next].thread].push_back(*next);
    }
    // Nothing comes before this launch any more: what has ended goes.
    const auto innermost = [&, at_ns = launch.at_ns](std::vector<size_t>* stack) {
      while (!stack->empty() && ranges[stack->back()].time.end_ns < at_ns) stack->pop_back();
      return stack->empty() ? kNone : stack->back();
    };
    const auto own = open.find(launch.thread);
    size_t range = own == open.end() ? kNone : innermost(&own->second);
    if (range == kNone) {
      for (auto& [thread, stack] : open) {
        const size_t other = innermost(&stack);
        if (other == kNone) continue;
        if (range == kNone || ranges[other].time.start_ns > ranges[range].time.start_ns) range = other;
      }
    }
    if (range == kNone) continue;
    std::optional<TimeSpan>& span = spans[range];
    if (!span) span = kernel;
    span->start_ns = std::min(span->start_ns, kernel.start_ns);
    span->end_ns = std::max(span->end_ns, kernel.end_ns);
  }
  return spans;
}

std::optional<int64_t> KinetoLaunches::LaunchedAt(uint64_t correlation) const {
  const auto found = launches_.find(correlation);
  if (found == launches_.end()) return std::nullopt;
  return found->second.at_ns;
}

}  // namespace c4::traces
