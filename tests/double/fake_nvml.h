// A double of NVIDIA's management library as a shared library, for tests of what is read from GPUs: two GPUs
// with values that a test sets, calls that fail or hang at its word. Tests find these functions by dlsym.
// Thread-safe.
//
// What it cannot show: that the real library gives these numbers for these faults.
#pragma once

#include <cstdint>

namespace c4::fake_nvml {

// The values of a GPU: "ecc_uncorrected", "ecc_corrected", "retired_pages", "remapped_rows", "throttle",
// "temperature", "slowdown", "clock", "max_clock", "utilization", "nvlinks", "nvlink_down" (a link's number
// plus one), "nvlink_replay", "nvlink_recovery", "nvlink_crc".
using Set = void (*)(int gpu, const char* what, uint64_t value);  // fake_nvml_set
using Xid = void (*)(int gpu, uint64_t number);                   // fake_nvml_xid: waits to be asked for
using Fail = void (*)(int gpu, int code);    // fake_nvml_fail: every call of it; 0: no more
using Without = void (*)(const char* what);  // fake_nvml_without: "driver", "gpus", "events"
using Hang = void (*)(int hang);             // fake_nvml_hang: calls do not come back while 1
using Reset = void (*)();                    // fake_nvml_reset: as it was at first

}  // namespace c4::fake_nvml
