// What has to be equal on all ranks that call an operation, and a number for it that is quick to compare.
//
// Pure functions; any thread; no errors.
#pragma once

#include <cstdint>
#include <tuple>

#include "c4d_master/job_state.h"

namespace c4::c4d {

using Call = std::tuple<uint32_t, uint32_t, uint32_t, int32_t, uint64_t>;

inline Call CallOf(const OperationInfo& info) {
  // all_reduce, reduce and reduce_scatter reduce; reduce, broadcast, gather and scatter have a root.
  const bool reduces = info.function == 1 || info.function == 2 || info.function == 5;
  const bool rooted = info.function == 2 || info.function == 3 || info.function == 7 || info.function == 8;
  return {info.function, info.data_type, reduces ? info.reduction : 0, rooted ? info.root : -1, info.count};
}

// Different calls have different marks, but for one pair in 2^64; no call has 0.
inline uint64_t CallMark(const OperationInfo& info) {
  const auto& [function, data_type, reduction, root, count] = CallOf(info);
  uint64_t mark = count;
  for (const uint64_t part :
       {uint64_t{function} << 32 | data_type, uint64_t{reduction} << 32 | static_cast<uint32_t>(root)}) {
    mark = (mark ^ (mark >> 29)) * 0xbf58476d1ce4e5b9U + part;
    mark = (mark ^ (mark >> 32)) * 0x94d049bb133111ebU;
  }
  return mark == 0 ? 1 : mark;
}

}  // namespace c4::c4d
