// The exported tables ncclProfiler_v3 to ncclProfiler_v7: NCCL's descriptors in, Events out. NCCL finds them
// in this library by NCCL_PROFILER_PLUGIN and calls them from its own threads: the one that calls operations,
// the one that makes progress, a host callback under CUDA graphs, from v7 on one for kernel times.
//
// Every answer is success, whatever came: monitoring may be blind, a job may not fail for it.
#pragma once

#include "ccl/plugins/profiler/abi.h"
#include "ccl/plugins/profiler/events.h"

namespace c4::profiler {

struct Settings {
  bool on = true;  // C4_MONITOR
  // C4_KERNEL_STAMPS: kernel events are asked for, of releases that give kernel times and of those that do
  // not.
  bool kernels = true;
  bool kernels_without_times = true;
  bool captures = true;  // who launches captured graphs is ours to tell, and not that of stamps
};

// What NCCL is asked for. The mask is the process's, and the last communicator's answer holds: all get the
// same.
int MaskOf(int version, const Settings& settings);

// For tests: in place of the process's own, which is made at the first init. Not while events come.
void Replace(Events* events, const Settings& settings);

}  // namespace c4::profiler

extern "C" {
__attribute__((visibility("default"))) extern const c4::nccl_profiler::TableV3 ncclProfiler_v3;
__attribute__((visibility("default"))) extern const c4::nccl_profiler::TableV4 ncclProfiler_v4;
__attribute__((visibility("default"))) extern const c4::nccl_profiler::TableV5 ncclProfiler_v5;
__attribute__((visibility("default"))) extern const c4::nccl_profiler::TableV6 ncclProfiler_v6;
__attribute__((visibility("default"))) extern const c4::nccl_profiler::TableV7 ncclProfiler_v7;
}
