// The ranks of one thread: their communicators, streams and buffers. What is asked of all of them at once
// goes into a group where they are several, since each may need the others to finish.
//
// Not thread-safe; of threads each has its own. A failure of the library ends the process: the first thread
// that meets one says so, the others wait for the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/perf_check.h"
#include "benchmarks/perf_common.h"
#include "benchmarks/perf_options.h"

namespace c4::perf {

// What is measured.
struct Subject {
  std::string program;
  Kind kind = Kind::kAllReduce;
  MakeCall make_call = nullptr;
  Options options;
  int ranks = 1;  // of all processes
};

class Ranks {
 public:
  // `first_rank` and the -g ranks from it on.
  Ranks(const Subject& subject, int first_rank);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void Join(ncclUniqueId id);
  void Allocate();
  void Leave();

  // What the calls from now on are about. Ends the pass before.
  void Begin(const Pass& pass);
  void EndPass();

  // Enqueues the operation of one size on all ranks, several times in one group.
  void Enqueue(size_t bytes, bool in_place, int times);
  // The same once, where the library may have reasons to refuse; false when it does.
  bool TryEnqueue(size_t bytes, bool in_place);
  void Wait();

  // Every rank's value, by rank; a barrier at the same time. Each rank of this thread gives `value`.
  std::vector<double> Share(double value);

  // Buffers as before an operation, with data of a new round; how many elements are wrong after it.
  void Fill(size_t bytes, bool in_place);
  int64_t CountWrong(size_t bytes, bool in_place);

  [[noreturn]] void Die(const std::string& sentence);

 private:
  struct Rank {
    Place place;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    char* send = nullptr;  // behind a guard, as recv
    char* recv = nullptr;
    float* words = nullptr;  // one of each rank
    ncclRedOp_t reduction = ncclSum;
    std::optional<Data> data;
  };

  bool several() const { return ranks_.size() > 1; }
  Shape ShapeFor(size_t bytes, const Rank& rank) const;
  CheckedCall CheckedCallOf(size_t bytes, bool in_place, const Rank& rank) const;
  ncclResult_t EnqueueAll(size_t bytes, bool in_place, int times);
  ncclResult_t EnqueueOne(size_t bytes, bool in_place, const Rank& rank);
  char* AllocateBuffer(size_t bytes);
  void Check(ncclResult_t code, const char* call);

  const Subject& subject_;
  std::vector<Rank> ranks_;
  Pass pass_;
  uint32_t round_ = 0;
};

}  // namespace c4::perf
