#include "benchmarks/perf_ranks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "ccl/include/c4/stream.h"

namespace c4::perf {

Ranks::Ranks(const Subject& subject, int first_rank)
    : subject_(subject), ranks_(static_cast<size_t>(subject.options.ranks_per_thread)) {
  for (size_t i = 0; i < ranks_.size(); ++i)
    ranks_[i].place = {first_rank + static_cast<int>(i), subject.ranks};
}

void Ranks::Join(ncclUniqueId id) {
  if (several()) Check(ncclGroupStart(), "ncclGroupStart");
  for (Rank& rank : ranks_) {
    Check(ncclCommInitRank(&rank.comm, rank.place.ranks, id, rank.place.rank), "ncclCommInitRank");
  }
  if (several()) Check(ncclGroupEnd(), "ncclGroupEnd");
  for (Rank& rank : ranks_) Check(c4StreamCreate(&rank.stream), "c4StreamCreate");
}

char* Ranks::AllocateBuffer(size_t bytes) {
  void* memory = nullptr;
  Check(ncclMemAlloc(&memory, bytes + 2 * kGuardBytes), "ncclMemAlloc");
  memset(memory, 0, bytes + 2 * kGuardBytes);
  return static_cast<char*>(memory) + kGuardBytes;
}

void Ranks::Allocate() {
  for (Rank& rank : ranks_) {
    size_t send_bytes = 1;
    size_t recv_bytes = 1;
    for (const ncclDataType_t type : subject_.options.types) {
      const size_t element_bytes = InfoOf(type).bytes;
      for (const size_t bytes : Sizes(subject_.options)) {
        const Shape shape = ShapeOf(subject_.kind, bytes, element_bytes, rank.place);
        send_bytes = std::max(send_bytes, SendCapacity(shape) * element_bytes);
        recv_bytes = std::max(recv_bytes, RecvCapacity(shape) * element_bytes);
      }
    }
    rank.send = AllocateBuffer(send_bytes);
    rank.recv = AllocateBuffer(recv_bytes);
    void* memory = nullptr;
    Check(ncclMemAlloc(&memory, static_cast<size_t>(subject_.ranks) * sizeof(float)), "ncclMemAlloc");
    rank.words = static_cast<float*>(memory);
  }
}

void Ranks::Leave() {
  EndPass();
  if (several()) Check(ncclGroupStart(), "ncclGroupStart");
  for (const Rank& rank : ranks_) Check(ncclCommFinalize(rank.comm), "ncclCommFinalize");
  if (several()) Check(ncclGroupEnd(), "ncclGroupEnd");
  for (Rank& rank : ranks_) {
    Check(ncclCommDestroy(std::exchange(rank.comm, nullptr)), "ncclCommDestroy");
    Check(c4StreamDestroy(rank.stream), "c4StreamDestroy");
    Check(ncclMemFree(rank.send - kGuardBytes), "ncclMemFree");
    Check(ncclMemFree(rank.recv - kGuardBytes), "ncclMemFree");
    Check(ncclMemFree(rank.words), "ncclMemFree");
  }
}

void Ranks::Begin(const Pass& pass) {
  EndPass();
  pass_ = pass;
  for (Rank& rank : ranks_) {
    rank.data.emplace(pass.type, pass.reduction, rank.place);
    if (!pass.reduction.has_value()) continue;
    rank.reduction = InfoOf(*pass.reduction).op;
    if (*pass.reduction != Reduction::kMulSum) continue;
    uint64_t scalar = Encode(InfoOf(pass.type), Data::Scalar(pass.type, rank.place.rank));
    Check(ncclRedOpCreatePreMulSum(&rank.reduction, &scalar, pass.type, ncclScalarHostImmediate, rank.comm),
          "ncclRedOpCreatePreMulSum");
  }
}

void Ranks::EndPass() {
  for (Rank& rank : ranks_) {
    if (!rank.data.has_value()) continue;
    if (pass_.reduction == Reduction::kMulSum)
      Check(ncclRedOpDestroy(rank.reduction, rank.comm), "ncclRedOpDestroy");
    rank.data.reset();
  }
}

Shape Ranks::ShapeFor(size_t bytes, const Rank& rank) const {
  return ShapeOf(subject_.kind, bytes, InfoOf(pass_.type).bytes, rank.place);
}

ncclResult_t Ranks::EnqueueOne(size_t bytes, bool in_place, const Rank& rank) {
  const size_t element_bytes = InfoOf(pass_.type).bytes;
  const Shape shape = ShapeFor(bytes, rank);
  Call call;
  call.send = in_place ? rank.recv + shape.in_place_send_offset * element_bytes : rank.send;
  call.recv = rank.recv + (in_place ? shape.in_place_recv_offset * element_bytes : 0);
  call.count = shape.count;
  call.type = pass_.type;
  call.reduction = rank.reduction;
  call.root = pass_.root;
  call.place = rank.place;
  call.comm = rank.comm;
  call.stream = rank.stream;
  return subject_.make_call(call);
}

ncclResult_t Ranks::EnqueueAll(size_t bytes, bool in_place, int times) {
  const bool grouped = several() || times > 1;
  if (grouped) Check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < times; ++i) {
    for (const Rank& rank : ranks_) {
      if (result == ncclSuccess) result = EnqueueOne(bytes, in_place, rank);
    }
  }
  if (!grouped) return result;
  const ncclResult_t end = ncclGroupEnd();  // says again what has failed
  return result == ncclSuccess ? end : result;
}

void Ranks::Enqueue(size_t bytes, bool in_place, int times) {
  Check(EnqueueAll(bytes, in_place, times), TraitsOf(subject_.kind).function);
}

bool Ranks::TryEnqueue(size_t bytes, bool in_place) {
  const ncclResult_t result = EnqueueAll(bytes, in_place, 1);
  if (result == ncclInvalidArgument || result == ncclInvalidUsage) return false;
  Check(result, TraitsOf(subject_.kind).function);
  return true;
}

void Ranks::Wait() {
  for (const Rank& rank : ranks_) {
    const ncclResult_t code = c4StreamSynchronize(rank.stream);
    ncclResult_t error = ncclSuccess;
    Check(ncclCommGetAsyncError(rank.comm, &error), "ncclCommGetAsyncError");
    Check(error, TraitsOf(subject_.kind).function);
    Check(code, "c4StreamSynchronize");
  }
}

// A sum of vectors in which each rank has filled in its place: the one reduction that every version of the
// library offers.
std::vector<double> Ranks::Share(double value) {
  const auto count = static_cast<size_t>(subject_.ranks);
  if (several()) Check(ncclGroupStart(), "ncclGroupStart");
  for (const Rank& rank : ranks_) {
    std::fill_n(rank.words, count, 0.0f);
    rank.words[rank.place.rank] = static_cast<float>(value);
    Check(ncclAllReduce(rank.words, rank.words, count, ncclFloat, ncclSum, rank.comm, rank.stream),
          "ncclAllReduce");
  }
  if (several()) Check(ncclGroupEnd(), "ncclGroupEnd");
  Wait();
  const float* const words = ranks_.front().words;
  return std::vector<double>(words, words + count);
}

CheckedCall Ranks::CheckedCallOf(size_t bytes, bool in_place, const Rank& rank) const {
  CheckedCall call;
  call.data = &*rank.data;
  call.kind = subject_.kind;
  call.shape = ShapeFor(bytes, rank);
  call.place = rank.place;
  call.root = pass_.root;
  call.in_place = in_place;
  call.round = round_;
  call.send = rank.send;
  call.recv = rank.recv;
  return call;
}

void Ranks::Fill(size_t bytes, bool in_place) {
  ++round_;
  for (const Rank& rank : ranks_) Prepare(CheckedCallOf(bytes, in_place, rank));
}

int64_t Ranks::CountWrong(size_t bytes, bool in_place) {
  int64_t wrong = 0;
  for (const Rank& rank : ranks_) {
    std::string first;
    const int64_t of_rank = perf::CountWrong(CheckedCallOf(bytes, in_place, rank), &first);
    if (of_rank == 0) continue;
    wrong += of_rank;
    fprintf(stderr, "rank %d: %s, %zu bytes of %s, %s: %s\n", rank.place.rank,
            TraitsOf(subject_.kind).function, bytes, InfoOf(pass_.type).name,
            in_place ? "in place" : "out of place", first.c_str());
  }
  return wrong;
}

void Ranks::Check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  // The sentence begins with the name of the call.
  const std::string sentence = ncclGetLastError(nullptr);
  Die((sentence.empty() ? call : sentence) + " [" + ncclGetErrorString(code) + "]");
}

void Ranks::Die(const std::string& sentence) {
  static std::mutex last_words;
  last_words.lock();  // for good: what other threads meet now is a consequence
  fflush(stdout);
  fprintf(stderr, "%s: rank %d, pid %d: %s\n", subject_.program.c_str(), ranks_.front().place.rank,
          static_cast<int>(getpid()), sentence.c_str());
  for (Rank& rank : ranks_) ncclCommAbort(std::exchange(rank.comm, nullptr));
  exit(1);  // NOLINT(concurrency-mt-unsafe): under the lock
}

}  // namespace c4::perf
