// What a simulated training job is made of: its layout on ranks, nodes and NICs, the durations of its steps,
// what its life brings (checkpoints, evaluations, a start that takes minutes), and the one fault that acts on
// it. Rank = (stage x data + replica) x tensor + shard; the tensor parallel ranks of a node share NVLink, all
// else crosses nodes.
//
// Plain values; no threads. REQUIRES of a shape: all sizes from 1, ranks() from 2, `expert` divides `data`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace c4::jobsim {

inline constexpr int64_t kNeverNs = INT64_MAX / 4;  // later than anything that is simulated
inline constexpr int64_t kMillisecondNs = 1'000'000;
inline constexpr int64_t kSecondNs = 1'000'000'000;

enum class Engine { kHost, kVendor };

// Who starts the ranks, and ends them once one has failed.
enum class Launcher { kNone, kTorchrun, kSrun, kMpirun };

struct Shape {
  uint32_t tensor = 8;
  uint32_t pipeline = 2;
  uint32_t data = 4;
  uint32_t expert = 1;  // replicas in a row that share their experts: all-to-all twice a pass
  uint32_t ranks_per_node = 8;
  uint32_t micro_batches = 4;
  Engine engine = Engine::kVendor;
  bool zero = false;           // gradients by reduce-scatter, parameters by all-gather
  bool world_reduce = false;   // a small all-reduce of all ranks at the end of each step
  bool overlaps = false;       // gradients on a stream of their own, beside the last backward pass
  bool blocking_sync = false;  // the CPU sleeps while it waits for the GPU

  // The network. Ranks take the NIC nics_per_node / ranks_per_node of their place in the node.
  uint32_t nics_per_node = 8;
  uint32_t nodes_per_leaf = 4;
  bool rails = false;  // the NICs of one number go to one leaf, those of a node to as many
  uint32_t spines = 4;
  uint32_t channels = 2;     // of each connection
  uint32_t queue_pairs = 2;  // of each channel, host engine

  int64_t forward_ns = 60 * kMillisecondNs;  // of a micro-batch in a stage; backward takes twice as long
  int64_t tensor_ns = 4 * kMillisecondNs;    // a tensor parallel all-reduce over NVLink
  int64_t expert_ns = 6 * kMillisecondNs;    // an all-to-all
  int64_t transfer_ns = 3 * kMillisecondNs;  // activations to the next stage
  int64_t gradients_ns = 120 * kMillisecondNs;
  int64_t data_ns = 5 * kMillisecondNs;  // a step's wait for the data loader
  int64_t launch_ns = 20'000;            // the CPU's time for each kernel
  double noise = 0.02;                   // of a kernel's duration, relative standard deviation
  double link_noise = 0.3;               // of a chunk's latency, standard deviation of its logarithm

  // The life of the job.
  int64_t start_skew_ns = 0;              // the last rank starts so long after the first
  int64_t first_step_ns = 8 * kSecondNs;  // more of the first step: compilation, allocation
  uint32_t warm_up_steps = 0;             // that take warm_up_factor as long
  double warm_up_factor = 1;
  uint32_t checkpoint_steps = 0;  // one is written after each so many steps; 0: none
  int64_t checkpoint_ns = 0;
  bool checkpoint_fsync = true;    // the writer is blocked in the kernel, else it computes
  bool checkpoint_by_all = false;  // of the first replica, each rank its shard; else by rank 0 alone
  uint32_t evaluation_steps = 0;   // after each so many steps the model is evaluated; 0: never
  uint32_t evaluation_batches = 0;
  uint32_t stall_steps = 0;     // once in so many steps the data of one rank come late; 0: never
  int64_t stall_ns = 0;         // by a tenth of this to all of it
  uint64_t steps = 0;           // after which the job ends; 0: never
  int64_t end_spread_ns = 0;    // ranks leave so far apart, and destroy no communicator
  int64_t ended_ns = kNeverNs;  // from outside, for an elastic restart or another job: all within a second

  uint32_t ranks() const { return tensor * pipeline * data; }
  uint32_t nodes() const { return (ranks() + ranks_per_node - 1) / ranks_per_node; }
  uint32_t node(uint32_t rank) const { return rank / ranks_per_node; }
  uint32_t nic(uint32_t rank) const { return rank % ranks_per_node * nics_per_node / ranks_per_node; }
  uint32_t stage(uint32_t rank) const { return rank / (tensor * data); }
  uint32_t replica(uint32_t rank) const { return rank / tensor % data; }
};

enum class FaultKind {
  kNone,
  kSpin,         // a kernel of the rank's own that never ends; the CPU waits for it, spinning
  kDataLoader,   // the rank's data loader hangs: nothing more is launched
  kFileSystem,   // the same, blocked in the kernel
  kKill,         // the process dies, out of memory for instance, and nobody ends the others
  kLaunched,     // the process fails, and its launcher kills all others within a second
  kOffBus,       // the GPU is gone: nothing on it ends; the process gets errors, aborts and leaves
  kStop,         // the process is stopped by a signal
  kMismatch,     // the rank calls a collective with another count
  kStuckInside,  // all ranks have entered a collective of the rank's, and its kernel never ends
  kLostNode,     // the node is gone with all that runs on it
  kSlowGpu,      // the rank's kernels take `factor` times as long
  kSlowNode,     // those of all ranks of its node do
  kSlowTensor,   // those of all ranks of its tensor parallel group do
  kSlowSeveral,  // those of `count` ranks do, the rank and others anywhere
  kSlowNvlink,   // what crosses the rank's NVLink does
  kSlowNic,      // what crosses the rank's NIC does
  kLossyNic,     // there, chunks get lost: many take as long, some `factor` times ten
  kDeadNic,      // nothing crosses it any more
  kPfcStorm,     // the leaf of the rank's NIC is paused nearly all the time
  kSlowSpine,    // what crosses the link between the NIC's leaf and a spine
  kDeadSpine,
  kAgentRestart,  // of the rank's node; the job is well
  kAgentStall,
  kClockStep,
  kCount
};

// From `at_ns` on, for `lasts_ns`. `rank` also names the node, the NIC, the leaf or the group that it belongs
// to.
struct Fault {
  FaultKind kind = FaultKind::kNone;
  uint32_t rank = 0;
  int64_t at_ns = kNeverNs;
  int64_t lasts_ns = kNeverNs;
  double factor = 1;
  uint32_t count = 1;  // of ranks, where there are several
  uint32_t spine = 0;  // of a link between leaf and spine
  Launcher launcher = Launcher::kNone;
};

std::string_view FaultName(FaultKind kind);
std::optional<FaultKind> FaultOf(std::string_view name);
std::string_view LauncherName(Launcher launcher);

// Nothing is wrong with the job itself: nothing may be said of it.
constexpr bool IsHarmless(FaultKind kind) {
  return kind == FaultKind::kNone || kind == FaultKind::kAgentRestart || kind == FaultKind::kAgentStall ||
         kind == FaultKind::kClockStep;
}

// The ranks whose own work takes `factor` times as long; empty: nobody's does. Ascending.
std::vector<uint32_t> SlowRanks(const Shape& shape, const Fault& fault);

}  // namespace c4::jobsim
