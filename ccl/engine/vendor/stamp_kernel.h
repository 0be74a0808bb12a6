// The one-thread kernel that stamps are made by, as text of NVIDIA's assembly language: the driver compiles
// it for whatever GPU there is, from Pascal on, so that nobody needs a CUDA toolkit. And what it writes.
//
// A stamp numbers itself, by a counter in device memory: what a graph was captured from runs many times with
// the same arguments. Its record goes to the place of that number in a ring in host memory; the number plus
// one is written last, so that whoever reads it there (and reads it again afterwards) has read a whole
// record.
#pragma once

#include <cstddef>
#include <cstdint>

namespace c4::vendor {

struct StampRecord {
  uint64_t number_plus_one;  // 0: never written, or being written
  uint64_t gpu_ns;           // the GPU's global timer
  uint64_t tag;              // as given to the launch
  uint64_t reserved;
};
static_assert(sizeof(StampRecord) == 32 && offsetof(StampRecord, gpu_ns) == 8 &&
              offsetof(StampRecord, tag) == 16);

// Counters of one loaded module, each for a ring.
inline constexpr uint32_t kStampCounters = 256;

inline constexpr char kStampFunction[] = "c4_stamp";
// Arguments, 64 bits each: the ring's device address, its number of records less one, which counter, the tag.
inline constexpr char kStampPtx[] = R"(.version 6.0
.target sm_60
.address_size 64

.global .align 8 .u64 c4_stamp_counts[256];

.visible .entry c4_stamp(
  .param .u64 ring,
  .param .u64 mask,
  .param .u64 counter,
  .param .u64 tag
)
{
  .reg .b64 %rd<11>;
  mov.u64 %rd1, %globaltimer;
  ld.param.u64 %rd2, [ring];
  ld.param.u64 %rd3, [mask];
  ld.param.u64 %rd4, [counter];
  ld.param.u64 %rd5, [tag];
  mov.u64 %rd6, c4_stamp_counts;
  shl.b64 %rd4, %rd4, 3;
  add.u64 %rd6, %rd6, %rd4;
  atom.global.add.u64 %rd7, [%rd6], 1;
  and.b64 %rd8, %rd7, %rd3;
  shl.b64 %rd8, %rd8, 5;
  add.u64 %rd8, %rd2, %rd8;
  mov.u64 %rd9, 0;
  st.volatile.global.u64 [%rd8], %rd9;
  membar.sys;
  st.volatile.global.u64 [%rd8+8], %rd1;
  st.volatile.global.u64 [%rd8+16], %rd5;
  membar.sys;
  add.u64 %rd10, %rd7, 1;
  st.volatile.global.u64 [%rd8], %rd10;
  ret;
}
)";

}  // namespace c4::vendor
