// What a simulated training job is made of: its layout on ranks, nodes and communicators, the durations of
// its steps, and the one fault that acts on it. Rank = (stage x data + replica) x tensor + shard; the tensor
// parallel ranks of a node share NVLink, all else crosses nodes.
//
// Plain values; no threads. REQUIRES of a shape: all sizes from 1, ranks() from 2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::jobsim {

inline constexpr int64_t kNeverNs = INT64_MAX / 4;  // later than anything that is simulated

enum class Engine { kHost, kVendor };

struct Shape {
  uint32_t tensor = 8;
  uint32_t pipeline = 2;
  uint32_t data = 4;
  uint32_t ranks_per_node = 8;
  uint32_t nics_per_node = 8;
  uint32_t micro_batches = 4;
  Engine engine = Engine::kVendor;
  int64_t forward_ns = 60'000'000;     // of a micro-batch in a stage; the backward pass takes twice as long
  int64_t tensor_ns = 4'000'000;       // a tensor parallel all-reduce over NVLink
  int64_t transfer_ns = 3'000'000;     // activations to the next stage
  int64_t gradients_ns = 120'000'000;  // the data parallel all-reduce
  int64_t data_ns = 5'000'000;         // a step's wait for the data loader
  int64_t launch_ns = 20'000;          // the CPU's time for each kernel
  int64_t first_step_ns = 8'000'000'000;  // more of the first step: compilation, allocation
  double noise = 0.02;                    // of a kernel's duration, relative standard deviation
  uint32_t checkpoint_steps = 0;          // rank 0 writes one after each so many steps; 0: none
  int64_t checkpoint_ns = 0;

  uint32_t ranks() const { return tensor * pipeline * data; }
  uint32_t nodes() const { return (ranks() + ranks_per_node - 1) / ranks_per_node; }
  uint32_t node(uint32_t rank) const { return rank / ranks_per_node; }
};

// A communicator.
struct Group {
  uint64_t id = 0;
  std::string name;
  bool point_to_point = false;  // stages of a pipeline, in order
  std::vector<uint32_t> ranks;
};

// Those of more than one rank.
std::vector<Group> Layout(const Shape& shape);

enum class FaultKind {
  kNone,
  kSpin,         // a kernel of the rank's own that never ends; the CPU waits for it, spinning
  kDataLoader,   // the rank's data loader hangs: nothing more is launched
  kKill,         // the process dies
  kStop,         // the process is stopped by a signal
  kStuckInside,  // all ranks have entered a collective of the rank's, and its kernel never ends
  kSlowGpu,      // the rank's kernels take `factor` times as long
  kSlowNode,     // those of all ranks of its node do
  kSlowTensor,   // those of all ranks of its tensor parallel group do
};

// From `at_ns` on. `rank` also names the node or the group that it belongs to.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  uint32_t rank = 0;
  int64_t at_ns = kNeverNs;
  double factor = 1;
};

const char* FaultName(FaultKind kind);

}  // namespace c4::jobsim
