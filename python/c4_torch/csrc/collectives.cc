// The collectives of group.h that move elements. Each makes its tensors into memory in one piece, enqueues
// one operation of the library's or a group of them, and copies back what has to be once it is over.
#include "calls.h"

namespace c4_torch {
namespace {

using c10d::OpType;

// Where the ranks' shares of a list of tensors lie: in the tensors themselves, or in a flat one to be copied.
struct Shares {
  at::Tensor flat;  // undefined: in the tensors themselves
  char* begin;
};

Shares RoomFor(const Tensors& tensors) {
  if (char* const begin = OneBehindTheOther(tensors)) return {{}, begin};
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::Tensor flat = at::empty({count}, tensors.front().options());
  return {flat, Begin(flat)};
}

Shares Filled(const Tensors& tensors) {
  if (char* const begin = OneBehindTheOther(tensors)) return {{}, begin};
  const at::Tensor flat = Flat(tensors);
  return {flat, Begin(flat)};
}

std::function<void()> CopyBack(const Shares& shares, const Tensors& tensors) {
  if (!shares.flat.defined()) return {};
  return [flat = shares.flat, tensors] { CopyFromFlat(flat, tensors); };
}

ncclResult_t SendTo(const Library& library, const void* begin, const Elements& elements, int peer,
                    ncclComm_t comm, cudaStream_t stream) {
  if (elements.count == 0) return ncclSuccess;
  return library.ncclSend(begin, elements.count, elements.type, peer, comm, stream);
}

ncclResult_t RecvFrom(const Library& library, void* begin, const Elements& elements, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  if (elements.count == 0) return ncclSuccess;
  return library.ncclRecv(begin, elements.count, elements.type, peer, comm, stream);
}

// In elements; even where no sizes are given.
std::vector<int64_t> SplitSizes(const at::Tensor& tensor, const std::vector<int64_t>& sizes, int ranks,
                                const char* title) {
  const int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK(rows % ranks == 0, title, ": a tensor of ", rows, " rows cannot be split evenly among ",
                ranks, " ranks");
    return std::vector<int64_t>(static_cast<size_t>(ranks), tensor.numel() / ranks);
  }
  TORCH_CHECK(sizes.size() == static_cast<size_t>(ranks), title, ": there are ", sizes.size(),
              " split sizes for ", ranks, " ranks");
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, title, ": a split size is ", size);
    sum += size;
  }
  TORCH_CHECK(sum == rows, title, ": the split sizes add up to ", sum, ", and the tensor has ", rows,
              " rows");
  const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<int64_t> counts;
  for (const int64_t size : sizes) counts.push_back(size * row);
  return counts;
}

}  // namespace

Group::Work Group::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  static constexpr char kTitle[] = "c4:broadcast";
  CheckOne(tensors, kTitle);
  CheckRoot(options.rootRank, size_, kTitle);
  const at::Tensor piece = tensors[0].contiguous();
  const Elements elements = ElementsOf(piece);
  const auto root = static_cast<int>(options.rootRank);
  return Launch(
      NewCall(OpType::BROADCAST, kTitle, tensors, tensors, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclBroadcast(Begin(piece), Begin(piece), elements.count, elements.type, root, comm,
                                     stream);
      },
      CopyBack(piece, tensors[0]));
}

Group::Work Group::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::AllgatherOptions& options) {
  static constexpr char kTitle[] = "c4:all_gather";
  CheckOne(inputs, kTitle);
  TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_), kTitle,
              " takes one output a rank, and there are ", size_, " ranks");
  CheckSameType(outputs[0], inputs[0].scalar_type(), kTitle);
  const at::Tensor mine = inputs[0].contiguous();
  const Tensors& all = outputs[0];
  TORCH_CHECK(all[static_cast<size_t>(rank_)].numel() == mine.numel(), kTitle,
              ": the output for this rank has another size than its input");
  const Call call = NewCall(OpType::ALLGATHER, kTitle, inputs, all, options.timeout);
  const Shares shares = RoomFor(all);
  if (SameCount(all, mine.numel())) {
    const Elements elements = ElementsOf(mine);
    return Launch(
        call,
        [=, flat = shares.flat](const Library& library, ncclComm_t comm, cudaStream_t stream) {
          return library.ncclAllGather(Begin(mine), shares.begin, elements.count, elements.type, comm,
                                       stream);
        },
        CopyBack(shares, all));
  }
  // Shares of several sizes: one broadcast a rank.
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return Grouped(library, [&] {
          char* at = shares.begin;
          ncclResult_t code = ncclSuccess;
          for (size_t rank = 0; rank < all.size() && code == ncclSuccess; ++rank) {
            const Elements elements = ElementsOf(all[rank]);
            code = library.ncclBroadcast(Begin(mine), at, elements.count, elements.type,
                                         static_cast<int>(rank), comm, stream);
            at += all[rank].nbytes();
          }
          return code;
        });
      },
      CopyBack(shares, all));
}

Group::Work Group::_allgather_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::AllgatherOptions& options) {
  static constexpr char kTitle[] = "c4:all_gather_into_tensor";
  CheckSameType({output, input}, input.scalar_type(), kTitle);
  TORCH_CHECK(output.numel() == input.numel() * size_, kTitle,
              ": the output tensor has to have the size of the input times the number of ranks");
  const at::Tensor mine = input.contiguous();
  const at::Tensor all = output.contiguous();
  const Elements elements = ElementsOf(mine);
  return Launch(
      NewCall(OpType::_ALLGATHER_BASE, kTitle, {input}, {output}, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllGather(Begin(mine), Begin(all), elements.count, elements.type, comm, stream);
      },
      CopyBack(all, output));
}

Group::Work Group::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  static constexpr char kTitle[] = "c4:all_gather_coalesced";
  TORCH_CHECK(!inputs.empty() && outputs.size() == static_cast<size_t>(size_), kTitle,
              " takes one list of outputs a rank, and there are ", size_, " ranks");
  CheckSameType(inputs, inputs[0].scalar_type(), kTitle);
  const at::Tensor mine = Flat(inputs);
  Tensors all;
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), kTitle, ": each list has as many outputs as there are inputs");
    for (size_t i = 0; i < list.size(); ++i) {
      TORCH_CHECK(list[i].numel() == inputs[i].numel() && list[i].scalar_type() == inputs[i].scalar_type(),
                  kTitle, ": output ", i, " is not of the size and type of input ", i);
      all.push_back(list[i]);
    }
  }
  CheckTensors(all, kTitle);
  const at::Tensor flat = at::empty({mine.numel() * size_}, mine.options());
  const Elements elements = ElementsOf(mine);
  return Launch(
      NewCall(OpType::ALLGATHER_COALESCED, kTitle, inputs, all, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclAllGather(Begin(mine), Begin(flat), elements.count, elements.type, comm, stream);
      },
      [=] { CopyFromFlat(flat, all); });
}

Group::Work Group::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllgatherOptions& options) {
  TORCH_CHECK(!inputs.empty() && outputs.size() == inputs.size(),
              "c4:all_gather_into_tensor_coalesced takes one output an input");
  return Joint(inputs.size(), [&](size_t i) { _allgather_base(outputs[i], inputs[i], options); });
}

Group::Work Group::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                          const c10d::GatherOptions& options) {
  static constexpr char kTitle[] = "c4:gather";
  CheckOne(inputs, kTitle);
  CheckRoot(options.rootRank, size_, kTitle);
  const auto root = static_cast<int>(options.rootRank);
  const at::Tensor mine = inputs[0].contiguous();
  const Elements elements = ElementsOf(mine);
  Tensors all;
  Shares shares{{}, nullptr};
  if (rank_ == root) {
    TORCH_CHECK(outputs.size() == 1 && outputs[0].size() == static_cast<size_t>(size_), kTitle,
                " takes one output a rank on the root, and there are ", size_, " ranks");
    all = outputs[0];
    CheckSameType(all, mine.scalar_type(), kTitle);
    TORCH_CHECK(SameCount(all, mine.numel()), kTitle, ": each output has the size of the input");
    shares = RoomFor(all);
  } else {
    TORCH_CHECK(outputs.empty() || outputs[0].empty(), kTitle, " takes outputs on the root alone");
  }
  return Launch(
      NewCall(OpType::GATHER, kTitle, inputs, all, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclGather(Begin(mine), shares.begin, elements.count, elements.type, root, comm,
                                  stream);
      },
      CopyBack(shares, all));
}

Group::Work Group::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ScatterOptions& options) {
  static constexpr char kTitle[] = "c4:scatter";
  CheckOne(outputs, kTitle);
  CheckRoot(options.rootRank, size_, kTitle);
  const auto root = static_cast<int>(options.rootRank);
  const at::Tensor mine = outputs[0].contiguous();
  const Elements elements = ElementsOf(mine);
  Shares shares{{}, nullptr};
  Tensors all;
  if (rank_ == root) {
    TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(size_), kTitle,
                " takes one input a rank on the root, and there are ", size_, " ranks");
    all = inputs[0];
    CheckSameType(all, mine.scalar_type(), kTitle);
    TORCH_CHECK(SameCount(all, mine.numel()), kTitle, ": each input has the size of the output");
    shares = Filled(all);
  } else {
    TORCH_CHECK(inputs.empty() || inputs[0].empty(), kTitle, " takes inputs on the root alone");
  }
  return Launch(
      NewCall(OpType::SCATTER, kTitle, all, outputs, options.timeout),
      [=, held = all](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return library.ncclScatter(shares.begin, Begin(mine), elements.count, elements.type, root, comm,
                                   stream);
      },
      CopyBack(mine, outputs[0]));
}

Group::Work Group::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                 std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  static constexpr char kTitle[] = "c4:all_to_all_single";
  CheckSameType({output, input}, input.scalar_type(), kTitle);
  const std::vector<int64_t> to = SplitSizes(input, input_splits, size_, kTitle);
  const std::vector<int64_t> from = SplitSizes(output, output_splits, size_, kTitle);
  const at::Tensor mine = input.contiguous();
  const at::Tensor all = output.contiguous();
  const Call call = NewCall(OpType::ALLTOALL_BASE, kTitle, {input}, {output}, options.timeout);
  const auto type = mine.scalar_type();
  if (output_splits.empty() && input_splits.empty()) {
    TORCH_CHECK(mine.numel() == all.numel(), kTitle, ": input and output have to have one size");
    const Elements elements = ElementsOf(type, mine.numel() / size_);
    return Launch(
        call,
        [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
          return library.ncclAlltoAll(Begin(mine), Begin(all), elements.count, elements.type, comm, stream);
        },
        CopyBack(all, output));
  }
  const auto item = static_cast<int64_t>(mine.element_size());
  return Launch(
      call,
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return Grouped(library, [&] {
          int64_t sent = 0;
          int64_t received = 0;
          ncclResult_t code = ncclSuccess;
          for (size_t peer = 0; peer < to.size() && code == ncclSuccess; ++peer) {
            const auto rank = static_cast<int>(peer);
            code = SendTo(library, Begin(mine) + sent * item, ElementsOf(type, to[peer]), rank, comm, stream);
            if (code == ncclSuccess) {
              code = RecvFrom(library, Begin(all) + received * item, ElementsOf(type, from[peer]), rank, comm,
                              stream);
            }
            sent += to[peer];
            received += from[peer];
          }
          return code;
        });
      },
      CopyBack(all, output));
}

Group::Work Group::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  static constexpr char kTitle[] = "c4:all_to_all";
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK(outputs.size() == ranks && inputs.size() == ranks, kTitle,
              " takes one input and one output a rank, and there are ", size_, " ranks");
  CheckSameType(inputs, inputs[0].scalar_type(), kTitle);
  CheckSameType(outputs, inputs[0].scalar_type(), kTitle);
  Tensors mine;
  Tensors all;
  for (size_t rank = 0; rank < ranks; ++rank) {
    mine.push_back(inputs[rank].contiguous());
    all.push_back(outputs[rank].contiguous());
  }
  return Launch(
      NewCall(OpType::ALLTOALL, kTitle, inputs, outputs, options.timeout),
      [=](const Library& library, ncclComm_t comm, cudaStream_t stream) {
        return Grouped(library, [&] {
          ncclResult_t code = ncclSuccess;
          for (size_t peer = 0; peer < mine.size() && code == ncclSuccess; ++peer) {
            const auto rank = static_cast<int>(peer);
            code = SendTo(library, Begin(mine[peer]), ElementsOf(mine[peer]), rank, comm, stream);
            if (code == ncclSuccess) {
              code = RecvFrom(library, Begin(all[peer]), ElementsOf(all[peer]), rank, comm, stream);
            }
          }
          return code;
        });
      },
      [=] {
        for (size_t rank = 0; rank < all.size(); ++rank) {
          if (!all[rank].is_same(outputs[rank])) outputs[rank].copy_(all[rank]);
        }
      });
}

}  // namespace c4_torch
