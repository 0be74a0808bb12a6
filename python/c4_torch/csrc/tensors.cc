#include "tensors.h"

namespace c4_torch {
namespace {

std::optional<ncclDataType_t> TypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat8_e4m3fn:
      return ncclFloat8e4m3;
    case at::kFloat8_e5m2:
      return ncclFloat8e5m2;
    case at::kChar:
      return ncclInt8;
    case at::kByte:
      return ncclUint8;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::ScalarType::UInt32:
      return ncclUint32;
    case at::ScalarType::UInt64:
      return ncclUint64;
    default:
      return std::nullopt;
  }
}

// On bytes that are 0 or 1.
std::optional<Reduction> OfBool(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
      return Reduction{ncclUint8, ncclMax};
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
      return Reduction{ncclUint8, ncclMin};
    default:
      return std::nullopt;
  }
}

at::Tensor Folded(const at::Tensor& gathered, at::Tensor (*combine)(const at::Tensor&, const at::Tensor&)) {
  at::Tensor sum = gathered[0].clone();
  for (int64_t rank = 1; rank < gathered.size(0); ++rank) sum = combine(sum, gathered[rank]);
  return sum;
}

}  // namespace

Elements ElementsOf(at::ScalarType type, int64_t count) {
  const auto elements = static_cast<size_t>(count);
  if (const auto known = TypeOf(type)) return {*known, elements};
  return {ncclUint8, elements * c10::elementSize(type)};
}

Elements ElementsOf(const at::Tensor& tensor) {
  return ElementsOf(tensor.scalar_type(), tensor.numel());
}

std::optional<Reduction> ReductionOf(const c10d::ReduceOp& op, at::ScalarType type) {
  if (type == at::kBool) return OfBool(op.op_);
  const auto known = TypeOf(type);
  if (!known) return std::nullopt;
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return Reduction{*known, ncclSum};
    case c10d::ReduceOp::AVG:
      return Reduction{*known, ncclAvg};
    case c10d::ReduceOp::PRODUCT:
      return Reduction{*known, ncclProd};
    case c10d::ReduceOp::MIN:
      return Reduction{*known, ncclMin};
    case c10d::ReduceOp::MAX:
      return Reduction{*known, ncclMax};
    default:
      return std::nullopt;
  }
}

at::Tensor ReduceGathered(const at::Tensor& gathered, const c10d::ReduceOp& op) {
  using At = const at::Tensor&;
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return Folded(gathered, [](At a, At b) { return at::add(a, b); });
    case c10d::ReduceOp::PRODUCT:
      return Folded(gathered, [](At a, At b) { return at::mul(a, b); });
    case c10d::ReduceOp::AVG:
      TORCH_CHECK(gathered.is_floating_point() || gathered.is_complex(), "c4 averages no ", gathered.dtype());
      return Folded(gathered, [](At a, At b) { return at::add(a, b); }).div_(gathered.size(0));
    case c10d::ReduceOp::MIN:
      return Folded(gathered, [](At a, At b) { return at::minimum(a, b); });
    case c10d::ReduceOp::MAX:
      return Folded(gathered, [](At a, At b) { return at::maximum(a, b); });
    case c10d::ReduceOp::BAND:
      return Folded(gathered, [](At a, At b) { return at::bitwise_and(a, b); });
    case c10d::ReduceOp::BOR:
      return Folded(gathered, [](At a, At b) { return at::bitwise_or(a, b); });
    case c10d::ReduceOp::BXOR:
      return Folded(gathered, [](At a, At b) { return at::bitwise_xor(a, b); });
    default:
      TORCH_CHECK(false, "c4 knows no reduction ", static_cast<int>(op.op_));
  }
}

at::Tensor Scaled(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensor;
  const auto* const supplement = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr, "PREMUL_SUM comes without its factor");
  if (supplement->tensor_factor.defined()) return tensor * supplement->tensor_factor.to(tensor.scalar_type());
  return tensor * supplement->double_factor;
}

void CheckDevice(const at::Tensor& tensor, const char* title) {
  TORCH_CHECK(tensor.device().is_cpu(), title,
              ": the backend c4 works on tensors of the CPU, and this one is on ", tensor.device(),
              "; init_process_group(\"cpu:c4,cuda:nccl\") serves both");
}

void CheckTensor(const at::Tensor& tensor, const char* title) {
  CheckDevice(tensor, title);
  TORCH_CHECK(tensor.layout() == at::kStrided, title,
              ": the backend c4 takes dense tensors, and this one's layout is ", tensor.layout());
}

void CheckTensors(const std::vector<at::Tensor>& tensors, const char* title) {
  for (const at::Tensor& tensor : tensors) CheckTensor(tensor, title);
}

void CheckSameType(const std::vector<at::Tensor>& tensors, at::ScalarType type, const char* title) {
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(tensor, title);
    TORCH_CHECK(tensor.scalar_type() == type, title, ": tensors of one call have one type, and here are ",
                type, " and ", tensor.scalar_type());
  }
}

char* Begin(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

char* OneBehindTheOther(const std::vector<at::Tensor>& tensors) {
  char* const begin = Begin(tensors.front());
  char* next = begin;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous() || Begin(tensor) != next) return nullptr;
    next += tensor.nbytes();
  }
  return begin;
}

at::Tensor Flat(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> flat;
  flat.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

void CopyFromFlat(const at::Tensor& flat, std::vector<at::Tensor> tensors) {
  int64_t at = 0;
  for (at::Tensor& tensor : tensors) {
    const int64_t count = tensor.numel();
    tensor.copy_(flat.narrow(0, at, count).view(tensor.sizes()));
    at += count;
  }
}

}  // namespace c4_torch
