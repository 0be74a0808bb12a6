// What the library makes of PyTorch's tensors: types, reductions, and memory in one piece.
//
// The library has no bool, no 16-bit integers, no complex numbers and no bitwise operators. What is only
// moved goes as bytes; what is reduced is gathered from all ranks and reduced here, by PyTorch, in the order
// of ranks.
#pragma once

#include <ATen/ATen.h>
#include <optional>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "library.h"

namespace c4_torch {

// How a tensor's elements are moved.
struct Elements {
  ncclDataType_t type;
  size_t count;
};
Elements ElementsOf(const at::Tensor& tensor);
Elements ElementsOf(at::ScalarType type, int64_t count);

// How the library reduces; nothing: it does not, and ReduceGathered has to.
struct Reduction {
  ncclDataType_t type;
  ncclRedOp_t op;
};
std::optional<Reduction> ReductionOf(const c10d::ReduceOp& op, at::ScalarType type);

// `gathered`: one row a rank. Throws where the operator makes no sense of the type.
at::Tensor ReduceGathered(const at::Tensor& gathered, const c10d::ReduceOp& op);

// PREMUL_SUM's factor, multiplied into a copy; else the tensor itself.
at::Tensor Scaled(const at::Tensor& tensor, const c10d::ReduceOp& op);

// Throws unless it lies on the CPU.
void CheckDevice(const at::Tensor& tensor, const char* title);
// The same, and unless it is dense.
void CheckTensor(const at::Tensor& tensor, const char* title);
void CheckTensors(const std::vector<at::Tensor>& tensors, const char* title);
void CheckSameType(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* title);

// All of them one behind the other in memory, from the first one on; nullptr: they are not.
char* OneBehindTheOther(const std::vector<at::Tensor>& tensors);

char* Begin(const at::Tensor& tensor);

// Of the tensors' elements, flat and one behind the other, in order.
at::Tensor Flat(const std::vector<at::Tensor>& tensors);
void CopyFromFlat(const at::Tensor& flat, std::vector<at::Tensor> tensors);

}  // namespace c4_torch
