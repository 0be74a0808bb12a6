// The collectives of group.h that reduce, and the barrier. What the library cannot reduce goes
// LaunchGathered's way.
#include "calls.h"

namespace c4_torch {

using c10d::OpType;

namespace {

// What the ranks of a sparse reduction have to know of each other: elements, and what has to be equal.
at::Tensor SparseShape(const at::Tensor& sparse) {
  at::Tensor shape = at::empty({3}, at::kLong);
  auto* const fields = shape.data_ptr<int64_t>();
  fields[0] = sparse._nnz();
  fields[1] = sparse.sparse_dim();
  fields[2] = static_cast<int64_t>(c10::get_hash(sparse.sizes()));
  return shape;
}

// Its first dimension filled up with zeros.
at::Tensor Padded(const at::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = rows;
  at::Tensor padded = at::zeros(sizes, tensor.options());
  padded.narrow(0, 0, tensor.size(0)).copy_(tensor);
  return padded;
}

std::vector<int64_t> TimesRanks(const at::Tensor& tensor, int ranks) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin(), ranks);
  return sizes;
}

}  // namespace

Group::Work Group::ReduceSparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr char kTitle[] = "c4:all_reduce";
  const at::Tensor whole = tensors[0];
  CheckDevice(whole, kTitle);
  TORCH_CHECK(options.reduceOp == c10d::ReduceOp::SUM, kTitle, ": sparse tensors are only summed");
  const at::Tensor sparse = whole.coalesce();
  const at::Tensor mine = SparseShape(sparse);
  const at::Tensor shapes = at::empty({size_, mine.numel()}, mine.options());
  at::Tensor all = shapes;
  at::Tensor one = mine;
  c10d::AllgatherOptions gathering;
  gathering.timeout = options.timeout;
  _allgather_base(all, one, gathering)->wait(kNoTimeout);
  const at::Tensor counts = shapes.select(1, 0).contiguous();
  for (int64_t field = 1; field < mine.numel(); ++field) {
    TORCH_CHECK(shapes.select(1, field).eq(mine[field]).all().item<bool>(), kTitle,
                ": sparse tensors of one call have one shape on all ranks");
  }
  const int64_t most = counts.max().item<int64_t>();
  // One row an element, so that what is filled up lies behind it.
  const at::Tensor indices = Padded(sparse.indices().t(), most);
  const at::Tensor values = Padded(sparse.values(), most);
  const at::Tensor all_indices = at::empty(TimesRanks(indices, size_), indices.options());
  const at::Tensor all_values = at::empty(TimesRanks(values, size_), values.options());
  return Launch(
      NewCall(OpType::ALLREDUCE, kTitle, tensors, tensors, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return Grouped(library, [&] {
          const Elements places = ElementsOf(indices);
          const Elements elements = ElementsOf(values);
          ncclResult_t code = library.ncclAllGather(Begin(indices), Begin(all_indices), places.count,
                                                    places.type, comm, stream);
          if (code != ncclSuccess || elements.count == 0) return code;
          return library.ncclAllGather(Begin(values), Begin(all_values), elements.count, elements.type, comm,
                                       stream);
        });
      },
      [=] {
        Tensors places;
        Tensors elements;
        for (int64_t rank = 0; rank < counts.numel(); ++rank) {
          const auto count = counts[rank].item<int64_t>();
          places.push_back(all_indices[rank].narrow(0, 0, count));
          elements.push_back(all_values[rank].narrow(0, 0, count));
        }
        const at::Tensor sum =
            at::sparse_coo_tensor(at::cat(places).t(), at::cat(elements), whole.sizes()).coalesce();
        whole.copy_(sum);
      });
}

Group::Work Group::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  static constexpr char kTitle[] = "c4:all_reduce";
  if (tensors.size() == 1 && tensors[0].layout() == at::kSparse) return ReduceSparse(tensors, options);
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
      CopyBack(mine, output));
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
      CopyBack(mine, output));
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
  return Launch(NewCall(OpType::BARRIER, "c4:barrier", {token}, {}, options.timeout),
                [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
                  return library.ncclAllReduce(Begin(token), Begin(token), 1, ncclUint8, ncclSum, comm,
                                               stream);
                });
}

}  // namespace c4_torch
