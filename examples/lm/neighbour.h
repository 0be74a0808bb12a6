// Checkpoints in memory: every few iterations each rank keeps its worker's state in the memory of its own
// host, and sends it to a rank on another one, which keeps it there. Processes that die leave them behind; a
// job that begins again takes from each worker the nearest copy that is left: of its own host, else over the
// network from whoever holds one. A host that is lost takes its memory with it, so the copy elsewhere counts.
//
// Copies are files of checkpoint.h below DIRECTORY/HOST/JOB-RUN/rank-R, where DIRECTORY is a tmpfs: what is
// torn fails its checksum. JOB tells models and layouts apart, RUN each start of a job, so copies of one
// iteration fit together only where they are of one run. Those of an iteration count when all workers have
// one.
//
// Asynchronous: Begin takes the bytes and returns; another thread waits for the network and writes. One
// thread calls. Errors are sentences on standard error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "examples/checkpoint.h"
#include "examples/lm/groups.h"

namespace c4::examples::lm {

// The rank that each rank sends its copy to, counted from itself: the least shift with which most of them
// send to another host. `hosts`: by rank, any numbers that tell hosts apart. Pure.
size_t ShiftToOtherHosts(const std::vector<uint64_t>& hosts);

class NeighbourCopies {
 public:
  // `groups` outlives it, connected. `directory`: of a tmpfs; `job`: of model and layout.
  NeighbourCopies(const Groups& groups, const World& world, std::string directory, uint64_t job);
  ~NeighbourCopies();
  NeighbourCopies(const NeighbourCopies&) = delete;
  NeighbourCopies& operator=(const NeighbourCopies&) = delete;

  // All ranks call it, as the other two. `most`: numbers of the largest worker's state.
  bool Open(size_t most);
  // The newest whole set of copies that are after `newer_than`; content->iteration is 0 where there is none.
  // `here`: the copy lay on this host.
  bool Restore(const Shard& shard, int stages, int tensor_ranks, int newer_than, CheckpointContent* content,
               bool* here);
  // Waits for the copy before, if it is not done yet.
  bool Begin(const Shard& shard, CheckpointContent content);
  // The copy that is under way. False: it failed, and with it the job, as a peer is gone.
  bool Settle();
  // After the job's end in order: nobody needs them any more.
  void Remove();
  bool Close();

  uint64_t copies() const { return copies_; }
  bool leaves_the_host() const { return leaves_; }

 private:
  struct Head {
    int32_t iteration;
    int32_t stage;
    int32_t tensor_rank;
    int32_t reserved;
    double first_loss;
    uint64_t count;
  };
  static constexpr size_t kHeadFloats = 16;
  static_assert(sizeof(Head) <= kHeadFloats * sizeof(float));
  struct Copy {
    uint64_t key = 0;  // the iteration, then the run
    std::string directory;
    Shard shard;
  };

  std::vector<Copy> FindCopies() const;
  void Work(const Shard& own, const CheckpointContent& content);
  void DropOtherRuns() const;

  const Groups& groups_;
  const World world_;
  const std::string directory_;
  const uint64_t job_;
  std::string host_folder_;  // below `directory_`
  std::string folder_;       // this rank's of this run
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  size_t shift_ = 0;
  bool leaves_ = false;
  std::vector<float> sent_, received_;
  std::thread worker_;
  bool failed_ = false;  // the worker's, read once it has ended
  uint64_t copies_ = 0;
};

}  // namespace c4::examples::lm
