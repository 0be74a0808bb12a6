// The collectives of group.h that reduce, and the barrier. What the library cannot reduce goes
// LaunchGathered's way.
#include "calls.h"

namespace c4_torch {

using c10d::OpType;

Group::Work Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr char kTitle[] = "c4:all_reduce";
  CheckOne(tensors, kTitle);
  const at::Tensor whole = tensors[0];
  const at::Tensor piece = Scaled(whole, options.reduceOp).contiguous();
  const Call call = NewCall(OpType::ALLREDUCE, kTitle, tensors, tensors, options.timeout);
  const auto reduction = ReductionOf(options.reduceOp, piece.scalar_type());
  if (!reduction) {
    return LaunchGathered(call, piece, options.reduceOp,
                          [whole](const at::Tensor& reduced) { whole.copy_(reduced.view(whole.sizes())); });
  }
  const auto count = static_cast<size_t>(piece.numel());
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllReduce(Begin(piece), Begin(piece), count, reduction->type, reduction->op, comm,
                                     stream);
      },
      CopyBack(piece, whole));
}

Group::Work Group::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  static constexpr char kTitle[] = "c4:all_reduce_coalesced";
  TORCH_CHECK(!tensors.empty(), kTitle, " takes at least one tensor");
  CheckSameType(tensors, tensors[0].scalar_type(), kTitle);
  Tensors flat{Scaled(Flat(tensors), options.reduceOp)};
  const auto reduction = ReductionOf(options.reduceOp, flat[0].scalar_type());
  const Call call = NewCall(OpType::ALLREDUCE_COALESCED, kTitle, tensors, tensors, options.timeout);
  if (!reduction) {
    return LaunchGathered(call, flat[0], options.reduceOp,
                          [tensors](const at::Tensor& reduced) { CopyFromFlat(reduced, tensors); });
  }
  return Launch(
      call,
      [=, piece = flat[0]](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllReduce(Begin(piece), Begin(piece), static_cast<size_t>(piece.numel()),
                                     reduction->type, reduction->op, comm, stream);
      },
      [piece = flat[0], tensors] { CopyFromFlat(piece, tensors); });
}

Group::Work Group::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  static constexpr char kTitle[] = "c4:reduce";
  CheckOne(tensors, kTitle);
  CheckRoot(options.rootRank, size_, kTitle);
  const auto root = static_cast<int>(options.rootRank);
  const at::Tensor whole = tensors[0];
  const at::Tensor piece = Scaled(whole, options.reduceOp).contiguous();
  const Call call = NewCall(OpType::REDUCE, kTitle, tensors, tensors, options.timeout);
  const bool here = rank_ == root;
  const auto reduction = ReductionOf(options.reduceOp, piece.scalar_type());
  if (!reduction) {
    return LaunchGathered(call, piece, options.reduceOp, [=](const at::Tensor& reduced) {
      if (here) whole.copy_(reduced.view(whole.sizes()));
    });
  }
  const auto count = static_cast<size_t>(piece.numel());
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclReduce(Begin(piece), here ? Begin(piece) : nullptr, count, reduction->type,
                                  reduction->op, root, comm, stream);
      },
      here ? CopyBack(piece, whole) : std::function<void()>());
}

Group::Work Group::ReduceScatterFlat(Call call, const at::Tensor& output, const at::Tensor& input,
                                     const c10d::ReduceOp& op) {
  const at::Tensor all = Scaled(input, op).contiguous();
  const auto reduction = ReductionOf(op, all.scalar_type());
  if (!reduction) {
    return LaunchGathered(call, all, op, [=, rank = rank_](const at::Tensor& reduced) {
      output.copy_(reduced.narrow(0, rank * output.numel(), output.numel()).view(output.sizes()));
    });
  }
  const at::Tensor mine = output.contiguous();
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclReduceScatter(Begin(all), Begin(mine), static_cast<size_t>(mine.numel()),
                                         reduction->type, reduction->op, comm, stream);
      },
      [all, back = CopyBack(mine, output)] {
        if (back) back();
      });
}

Group::Work Group::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ReduceScatterOptions& options) {
  static constexpr char kTitle[] = "c4:reduce_scatter";
  CheckOne(outputs, kTitle);
  TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_), kTitle,
              " takes one input a rank, and there are ", size_, " ranks");
  const Tensors& all = inputs[0];
  const at::Tensor output = outputs[0];
  CheckSameType(all, output.scalar_type(), kTitle);
  TORCH_CHECK(all[static_cast<size_t>(rank_)].numel() == output.numel(), kTitle,
              ": the input for this rank has another size than its output");
  Call call = NewCall(OpType::REDUCE_SCATTER, kTitle, all, outputs, options.timeout);
  if (SameCount(all, output.numel())) {
    const char* const begin = OneBehindTheOther(all);
    const at::Tensor flat = begin == nullptr
                                ? Flat(all)
                                : at::from_blob(Begin(all[0]), {output.numel() * size_}, output.options());
    return ReduceScatterFlat(std::move(call), output, flat, options.reduceOp);
  }
  // Shares of several sizes: one reduction a rank.
  const auto reduction = ReductionOf(options.reduceOp, output.scalar_type());
  TORCH_CHECK(reduction.has_value(), kTitle, " of shares of several sizes has no reduction of ",
              output.dtype(), " by this operator");
  const at::Tensor flat = Scaled(Flat(all), options.reduceOp);
  const at::Tensor mine = output.contiguous();
  return Launch(
      call,
      [=, rank = rank_](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return Grouped(library, [&] {
          const char* at = Begin(flat);
          ncclResult_t code = ncclSuccess;
          for (size_t root = 0; root < all.size() && code == ncclSuccess; ++root) {
            const auto peer = static_cast<int>(root);
            code = library.ncclReduce(at, peer == rank ? Begin(mine) : nullptr,
                                      static_cast<size_t>(all[root].numel()), reduction->type, reduction->op,
                                      peer, comm, stream);
            at += all[root].nbytes();
          }
          return code;
        });
      },
      [flat, back = CopyBack(mine, output)] {
        if (back) back();
      });
}

Group::Work Group::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                        const c10d::ReduceScatterOptions& options) {
  static constexpr char kTitle[] = "c4:reduce_scatter_tensor";
  CheckSameType({output, input}, input.scalar_type(), kTitle);
  TORCH_CHECK(input.numel() == output.numel() * size_, kTitle,
              ": the input tensor has to have the size of the output times the number of ranks");
  Call call = NewCall(OpType::_REDUCE_SCATTER_BASE, kTitle, {input}, {output}, options.timeout);
  return ReduceScatterFlat(std::move(call), output, input.contiguous().view({-1}), options.reduceOp);
}

Group::Work Group::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(),
              "c4:reduce_scatter_tensor_coalesced takes one output an input");
  return Joint(inputs.size(), [&](size_t i) { _reduce_scatter_base(outputs[i], inputs[i], options); });
}

Group::Work Group::barrier(const c10d::BarrierOptions& options) {
  const at::Tensor token = at::zeros({1}, at::kByte);
  return Launch(
      NewCall(OpType::BARRIER, "c4:barrier", {token}, {}, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllReduce(Begin(token), Begin(token), 1, ncclUint8, ncclSum, comm, stream);
      },
      [token] {});
}

}  // namespace c4_torch
