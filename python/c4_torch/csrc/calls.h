// What the collectives of group.h share: checks of their arguments, and what is left to do after them.
#pragma once

#include <algorithm>

#include "group.h"

namespace c4_torch {

using Tensors = Group::Tensors;

inline void CheckOne(const Tensors& tensors, const char* title) {
  TORCH_CHECK(tensors.size() == 1, title, " takes one tensor a call, and here are ", tensors.size());
  CheckTensors(tensors, title);
}

inline void CheckRoot(int64_t root, int size, const char* title) {
  TORCH_CHECK(root >= 0 && root < size, title, ": ", root, " is no rank of this group of ", size);
}

inline bool SameCount(const Tensors& tensors, int64_t count) {
  return std::all_of(tensors.begin(), tensors.end(), [count](const auto& t) { return t.numel() == count; });
}

// The tensor itself where it is in one piece.
inline std::function<void()> CopyBack(const at::Tensor& piece, const at::Tensor& whole) {
  if (piece.is_same(whole)) return {};
  return [piece, whole] { whole.copy_(piece.view(whole.sizes())); };
}

// A group of calls; ends it whatever they give.
template <typename Calls>
ncclResult_t Grouped(const Library& library, const Calls& calls) {
  ncclResult_t code = library.ncclGroupStart();
  if (code != ncclSuccess) return code;
  code = calls();
  const ncclResult_t ended = library.ncclGroupEnd();
  return code == ncclSuccess ? ended : code;
}

template <typename Each>
Group::Work Group::Joint(size_t count, Each each) {
  const bool outer = coalesced_.has_value();
  if (!outer) startCoalescing();
  try {
    for (size_t i = 0; i < count; ++i) each(i);
  } catch (...) {
    if (!outer) coalesced_.reset();
    throw;
  }
  return outer ? coalesced_->back() : endCoalescing();
}

}  // namespace c4_torch
