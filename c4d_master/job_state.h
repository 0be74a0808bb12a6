// What the master knows of a job, as plain values: hosts, their processes, the communicators that these
// are members of, the queue pairs of these. Made from telemetry by telemetry_decode, read by the detectors.
//
// All times (`*_at_ns`, `as_of_ns`) are on the master's monotonic clock; kNever where nothing happened yet.
// No ownership beyond the values themselves, no threads of its own, no errors.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace c4::c4d {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kSecondNs = 1'000'000'000;

// A moment, as every piece of logic is handed it: what it does depends on nothing else.
struct Now {
  int64_t monotonic_ns = 0;
  int64_t unix_ns = 0;

  // The Unix time of a moment on the master's monotonic clock.
  int64_t UnixOf(int64_t at_ns) const { return unix_ns - (monotonic_ns - at_ns); }
};

// A process for as long as the cluster lives: a pid may be used again, these three together not.
struct ProcessKey {
  std::string boot_id;
  uint32_t pid = 0;
  uint64_t start_time_ticks = 0;

  friend bool operator==(const ProcessKey&, const ProcessKey&) = default;
  friend bool operator<(const ProcessKey& a, const ProcessKey& b) {
    return std::tie(a.boot_id, a.pid, a.start_time_ticks) < std::tie(b.boot_id, b.pid, b.start_time_ticks);
  }
};

// The numbers are those of c4.v1.ProcessState.
enum class ProcessState {
  kUnknown = 0,
  kRunning = 1,
  kSleeping = 2,
  kBlocked = 3,
  kStopped = 4,
  kTraced = 5,
  kZombie = 6,
  kGone = 7,
};

// It executes nothing, whatever its counters say.
constexpr bool CannotRun(ProcessState state) {
  return state == ProcessState::kStopped || state == ProcessState::kTraced ||
         state == ProcessState::kZombie || state == ProcessState::kGone;
}

struct Health {
  ProcessState state = ProcessState::kUnknown;
  int64_t state_since_at_ns = kNever;
  int64_t last_progress_at_ns = kNever;  // CPU time or I/O moved
  int64_t last_io_at_ns = kNever;        // I/O did, or it was blocked in the kernel
  uint64_t cpu_ns = 0;
  uint64_t io_bytes = 0;
  std::string wait_channel;
  // Of one that is gone: when exactly it ended, kNever where its agent did not see that; and how, as wait(2)
  // tells it, where that was seen.
  int64_t exit_at_ns = kNever;
  std::optional<int32_t> exit_status;
};

// The numbers are those of c4.v1.Phase.
enum class Phase {
  kUnknown = 0,
  kInit = 1,
  kReady = 2,
  kFinalized = 3,
  kDestroyed = 4,
  kAborted = 5,
  kFailed = 6
};

// One call. The numbers are c4.v1.Function's, and NCCL's own.
struct OperationInfo {
  uint32_t function = 0;
  uint32_t data_type = 0;
  uint32_t reduction = 0;
  int32_t root = -1;
  uint64_t count = 0;

  friend bool operator==(const OperationInfo&, const OperationInfo&) = default;
};

struct Counter {
  uint64_t count = 0;
  int64_t last_at_ns = kNever;
};

// Of a connection as a whole (telemetry.proto); kept on its queue pair of index 0.
struct Connection {
  bool known = false;
  uint64_t wanted = 0;
  uint64_t granted = 0;
  uint64_t done = 0;
  uint64_t first_waits = 0;
  uint64_t first_wait_sum_ns = 0;
};

inline constexpr size_t kLatencyBuckets = 32;
using LatencyHistogram = std::array<uint32_t, kLatencyBuckets>;

// The vendor's engine shows what it moves between two ranks, whichever transport carries it, and of a plugin
// of the user's whole messages; both stand beside the queue pairs, if there are any.
enum class Carrier { kQueuePair, kVendor, kPlugin };

// How often both ends of a queue pair of our own give one.
inline constexpr int64_t kSignOfLifeNs = 1000000000;

struct QueuePair {
  int64_t last_heard_at_ns = kNever;  // sender: a sign of life of the other end; one comes each second
  uint32_t peer = 0;                  // rank in the communicator
  uint32_t peer_number = 0;           // verbs: of the other end's queue pair, at `remote`; 0: not known
  bool sends = false;
  uint32_t channel = 0;
  uint32_t index = 0;
  Carrier carrier = Carrier::kQueuePair;
  uint64_t posted_messages = 0;
  uint64_t posted_bytes = 0;
  uint64_t completed_messages = 0;
  uint64_t completed_bytes = 0;
  uint64_t moved_bytes = 0;
  int64_t last_progress_at_ns = kNever;
  int64_t last_post_at_ns = kNever;
  uint64_t number = 0;
  uint32_t fences = 0;         // sender
  bool dead = false;           // fenced, and not built again yet
  LatencyHistogram latency{};  // chunks completed so far
  Connection connection;
  std::string local;
  std::string remote;
};

// The last words of a rank about a communicator.
struct GaveUp {
  int64_t at_ns = kNever;    // it failed, or the program aborted it; kNever: neither
  int32_t result = 0;        // NCCL's, 0 where the program aborted it
  int32_t blamed_rank = -1;  // in the communicator, that it lost; -1: it blames nobody
};

// What the queue pairs of a membership come to (queue_pair_sums.h).
struct QueuePairSums {
  uint64_t moved_bytes = 0;
  int64_t moved_at_ns = kNever;  // the last time
  // The oldest last step of one that sends, has posted bytes that are not completed, and may be stuck, or
  // since when the next sign of life is due of one.
  int64_t outstanding_since_ns = std::numeric_limits<int64_t>::max();
};

// One rank's end of a communicator.
struct Membership {
  uint64_t communicator_id = 0;
  uint32_t rank = 0;
  uint32_t rank_count = 0;
  Phase phase = Phase::kUnknown;
  std::string name;
  Counter called;
  Counter started;
  Counter finished;
  OperationInfo last_called;
  OperationInfo last_started;
  // The counters above count collectives, alike on all ranks; these count sends and receives.
  Counter p2p_called;
  Counter p2p_started;
  Counter p2p_finished;
  OperationInfo last_p2p_called;
  OperationInfo last_p2p_started;
  // The vendor's engine runs it, on GPUs; and whether it is seen when its kernels begin and end.
  bool vendor = false;
  bool sees_events = false;  // its operations reach the profiler, so that their kernels will be seen
  bool sees_kernels = false;
  uint64_t parent_id = 0;
  int64_t phase_since_at_ns = kNever;
  GaveUp gave_up;
  // Collectives that have finished since the batch before, as far as the agent has timed them, and how long
  // they took from start to finish, together.
  uint64_t timed = 0;
  uint64_t timed_ns = 0;
  std::vector<QueuePair> queue_pairs;
  uint32_t revision = 0;  // changes with any of the above, as long as it stays in its place
  // Of queue_pairs as they were at that revision; nothing: nobody has added them up.
  std::optional<uint32_t> summed_at_revision;
  QueuePairSums sums;
};

struct Process {
  ProcessKey key;
  std::string program;
  uint32_t incarnation = 0;
  int64_t owner_uid = -1;  // -1: the agent does not say
  int32_t rank = -1;       // the job's: RANK's label, else its rank in the widest communicator
  bool ended = false;
  Health health;
  std::vector<Membership> communicators;
  int64_t first_seen_at_ns = kNever;
  int32_t world = -1;  // ranks of the job by its label; -1 when unknown
  uint64_t in_operation_ns = 0;
  uint64_t operations_finished = 0;
  bool plugin_tells_addresses = false;  // it has queue pairs of the network plugin, in their communicator
};

// Whether queue pairs with addresses tell what the membership sends. What the vendor's engine tells of its
// steps is then the same data again, without addresses, and with the lateness of the other end in it.
inline bool HasAddresses(const Membership& membership) {
  return std::any_of(membership.queue_pairs.begin(), membership.queue_pairs.end(),
                     [](const QueuePair& queue_pair) { return !queue_pair.local.empty(); });
}
inline bool TellsAddresses(const Process& process, const Membership& membership) {
  return (membership.vendor && process.plugin_tells_addresses) || HasAddresses(membership);
}

// One node, as its agent told it last.
inline constexpr size_t kMostMemoryKills = 64;

struct Host {
  std::string name;
  uint64_t agent_epoch = 0;
  uint64_t sequence = 0;
  std::string agent_version;
  uint64_t segments_refused = 0;
  std::string refusal;
  uint64_t batches = 0;                   // taken in
  uint64_t batches_dropped = 0;           // by the agent, in all
  std::optional<int64_t> clock_error_ns;  // of the relation of its clock to the master's, where that is known
  int64_t as_of_ns = kNever;              // when the agent read the state that is held here
  int64_t silent_from_ns = kNever;        // when it last began to be stale, and was heard again
  int64_t back_at_ns = kNever;
  uint64_t revision = 0;  // changes with each batch
  std::vector<Process> processes;
  // Processes that its kernel killed for want of memory, and when; the newest last, kMostMemoryKills of them.
  std::vector<std::pair<uint32_t, int64_t>> memory_kills;

  // All have left: nothing more is to be told, silence means nothing.
  bool Drained() const {
    for (const Process& process : processes) {
      if (!process.ended) return false;
    }
    return true;
  }
};

}  // namespace c4::c4d
