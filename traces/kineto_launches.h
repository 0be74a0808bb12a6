// Tells which kernels a range of the program launched, and when these ran. The profiler gives the launch on
// the CPU and the kernel on the GPU the same number (`correlation`). A mark that the profiler mirrors on the
// GPU covers only what the marking thread launched itself; autograd launches the backward pass from a thread
// of its own.
//
// Memory: some 50 bytes a launch and as many a kernel. Plain values; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace c4::traces {

inline constexpr char kCorrelation[] = "correlation";  // the argument

// Categories, as profilers of all ages write them.
bool IsLaunch(std::string_view category);   // a call of the GPU's runtime
bool IsOnGpu(std::string_view category);    // a kernel, a copy, or a mark that is mirrored there
bool IsGpuWork(std::string_view category);  // a kernel or a copy

struct TimeSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

class KinetoLaunches {
 public:
  // Part of the program's time on one of its threads. Ranges of a thread lie within each other or apart.
  struct Range {
    uint32_t thread = 0;
    TimeSpan time;
  };

  void AddLaunch(uint32_t thread, uint64_t correlation, int64_t at_ns);
  void AddKernel(uint64_t correlation, TimeSpan time);  // several may have one number: a graph's
  size_t size() const { return launches_.size() + kernels_.size(); }

  // For each range the time from the start of the first kernel that it launched to the end of the last;
  // nullopt: it launched none. A launch belongs to the innermost range around it on its thread; where its
  // thread has none, to the range of another thread that began last.
  std::vector<std::optional<TimeSpan>> SpansOf(const std::vector<Range>& ranges) const;
  // When the program launched it; nullopt: that is not known.
  std::optional<int64_t> LaunchedAt(uint64_t correlation) const;

 private:
  struct Launch {
    int64_t at_ns = 0;
    uint32_t thread = 0;
  };

  std::unordered_map<uint64_t, Launch> launches_;
  std::unordered_map<uint64_t, TimeSpan> kernels_;
};

}  // namespace c4::traces
