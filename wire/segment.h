// The shared-memory segment of one training process (docs/formats/segment.md).
//
// One file per process under C4_RUN_DIR, `*.c4seg`: header, a table of communicators, a table of queue
// pairs, a pool of record rings. The process writes, the agent reads, also after the process stopped,
// hung or died. The writer holds an exclusive fcntl lock on byte 0 for as long as it lives.
//
// Writing: every 64-byte line has one writing thread at a time. A counter is one aligned 64-bit word.
// A ring has one writer, which publishes `head` with release order after the record; it never waits for
// the reader and overwrites the oldest record when full.
// Reading: the agent copies with pread (a truncated file cannot fault it) and bounds-checks every index.
// Times are raw ticks of `clock_kind`, related to CLOCK_MONOTONIC by the reader.
#pragma once

#include "wire/header.h"

namespace c4::wire {

inline constexpr uint64_t kSegmentMagic = Magic("C4SEGMNT");
inline constexpr uint16_t kSegmentMajor = 1;
inline constexpr uint16_t kSegmentMinor = 6;
inline constexpr char kSegmentSuffix[] = ".c4seg";

enum ClockKind : uint32_t {
  kClockMonotonic = 1,  // CLOCK_MONOTONIC nanoseconds
  kClockTsc = 2,        // invariant time stamp counter
};

enum RecordLevel : uint32_t { kLevelOff = 0, kLevelCoarse = 1, kLevelFine = 2 };

// Where the job's name came from, best first. A provisional name is a hash of the first communicator.
enum JobSource : uint32_t {
  kJobUnknown = 0,
  kJobC4 = 1,
  kJobSlurm = 2,
  kJobTorchElastic = 3,
  kJobPodLabel = 4,
  kJobProvisional = 5,
};

struct TableRef {
  uint64_t offset;  // from the start of the file, a multiple of 64
  uint32_t count;
  uint32_t stride_bytes;
};
static_assert(sizeof(TableRef) == 16);

// Since 1.4: which worker of the job's layout the process says that it is (ccl/include/c4/marks.h).
struct WorkerPlace {
  uint16_t declared;  // times that it was said, published last; 0: not yet, or an older writer
  uint16_t dp_rank;
  uint16_t stage;
  uint16_t tp_rank;
  uint16_t cp_rank;
  uint16_t dp_size;
  uint16_t pp_size;
  uint16_t tp_size;
  uint16_t cp_size;
  uint16_t vpp_size;  // model chunks a stage
  uint16_t layers;    // of the model; 0: not said
  uint16_t reserved;
};
static_assert(sizeof(WorkerPlace) == 24);

struct SegmentHeader {
  Header header;

  // Line 1: the clock.
  uint32_t clock_kind;
  uint32_t level;  // RecordLevel in force
  uint64_t ticks_per_second;
  uint64_t base_ticks;  // taken together with
  uint64_t base_monotonic_ns;
  uint64_t pid_namespace;  // inode of /proc/self/ns/pid
  uint32_t ended;          // 1 once the process has left in order
  uint32_t job_source;
  uint32_t reserved1[4];

  // Line 2: the layout.
  TableRef communicators;
  TableRef queue_pairs;
  TableRef rings;               // stride covers a RingHeader and its records
  uint32_t ring_capacity;       // records of header.record_bytes each, a power of two
  uint32_t communicators_used;  // high-water marks: slots past them were never used
  uint32_t queue_pairs_used;
  uint32_t rings_used;

  // Line 3: what did not fit, and labels.
  uint64_t communicators_refused;
  uint64_t queue_pairs_refused;
  uint64_t rings_refused;
  int32_t rank_label;        // RANK or its like; -1 when unknown
  int32_t local_rank_label;  // LOCAL_RANK or its like; -1 when unknown
  int32_t world_label;       // WORLD_SIZE or its like; -1 when unknown
  uint32_t incarnation;      // restart count of the job
  WorkerPlace worker;

  // Lines 4 to 7: names, always NUL-terminated.
  char host[64];
  char job[128];
  char program[64];
};
static_assert(sizeof(SegmentHeader) == 512);
static_assert(offsetof(SegmentHeader, clock_kind) == 64);
static_assert(offsetof(SegmentHeader, communicators) == 128);
static_assert(offsetof(SegmentHeader, communicators_refused) == 192);
static_assert(offsetof(SegmentHeader, host) == 256);

enum SlotPhase : uint32_t {
  kPhaseFree = 0,
  kPhaseInit = 1,  // communicator: waiting for its peers; queue pair: connecting
  kPhaseReady = 2,
  kPhaseFinalized = 3,
  kPhaseDestroyed = 4,
  kPhaseAborted = 5,
  kPhaseFailed = 6,
};

enum EngineKind : uint32_t { kEngineHost = 1, kEngineVendor = 2 };

// What is seen of a communicator that the vendor's engine runs (CommunicatorSlot::seen); the host engine sees
// all of its own and leaves 0. Without kSeesKernels nobody knows what has started: the counters stand still.
enum Seen : uint32_t {
  kSeesEvents = 1,   // its operations reach the vendor's profiler, so that calls and events meet
  kSeesKernels = 2,  // when kernels begin and end
  kSeesSteps = 4,    // what its network does, step by step
};

// NCCL's operations; the numbers are the format's own.
enum Function : uint8_t {
  kFunctionNone = 0,
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kAlltoAll = 6,
  kGather = 7,
  kScatter = 8,
  kSend = 9,
  kRecv = 10,
};

// What an operation is; data type and reduction carry NCCL's own numbers.
struct OperationInfo {
  uint64_t count;  // elements
  int32_t root;    // root or peer; -1 where there is none
  uint8_t function;
  uint8_t data_type;
  uint8_t reduction;
  uint8_t algorithm;  // 1 ring
};
static_assert(sizeof(OperationInfo) == 16);

struct Counter {
  uint64_t count;
  uint64_t ticks;   // of the last increment
  uint64_t stream;  // of the last increment; 0 is the null stream
};
static_assert(sizeof(Counter) == 24);

// One rank's membership in one communicator. Collectives are numbered per communicator, so that ranks can
// be compared by their counters; sends and receives are counted apart, because they are nobody else's.
struct CommunicatorSlot {
  // Line 0: identity; written by the thread that creates or ends the communicator.
  uint32_t phase;       // SlotPhase, published last
  uint32_t generation;  // times that this slot was taken
  uint64_t communicator_id;
  uint64_t parent_id;  // 0 where there is none
  int32_t rank;
  uint32_t rank_count;
  uint64_t created_ticks;
  uint64_t ready_ticks;
  uint32_t engine;
  uint32_t reserved0[3];
  // Line 1: written by the calling thread.
  Counter called;
  Counter enqueued;
  OperationInfo last_called;
  // Line 2: written by the executor.
  Counter started;
  Counter finished;
  OperationInfo last_started;
  // Line 3.
  char name[32];
  // Since 1.3, engine vendor: what is seen of it (Seen), and how far off kernel times may be.
  uint32_t seen;
  uint32_t kernel_error_ns;  // UINT32_MAX: nobody can tell
  // Since 1.5, its last words: when it failed or was aborted, the first time. Published last; 0: it has not.
  uint64_t gave_up_ticks;
  int32_t gave_up_result;  // NCCL's result that it failed with; 0: the program aborted it
  uint32_t blamed;         // the rank in the communicator that it lost, and 1; 0: it blames nobody
  uint8_t reserved3[8];
  // Line 4, since 1.1: as line 1, for sends and receives.
  Counter p2p_called;
  Counter p2p_enqueued;
  OperationInfo last_p2p_called;
  // Line 5, since 1.1: as line 2, for sends and receives.
  Counter p2p_started;
  Counter p2p_finished;
  OperationInfo last_p2p_started;
};
static_assert(sizeof(CommunicatorSlot) == 384);
static_assert(offsetof(CommunicatorSlot, called) == 64);
static_assert(offsetof(CommunicatorSlot, started) == 128);
static_assert(offsetof(CommunicatorSlot, name) == 192);
static_assert(offsetof(CommunicatorSlot, seen) == 224);
static_assert(offsetof(CommunicatorSlot, gave_up_ticks) == 232);
static_assert(offsetof(CommunicatorSlot, p2p_called) == 256);
static_assert(offsetof(CommunicatorSlot, p2p_started) == 320);
inline constexpr uint32_t kCommunicatorSlotBytesV10 = 256;

enum Direction : uint32_t { kDirectionSend = 1, kDirectionReceive = 2 };
// Of a sender's queue pair (QueuePairSlot::path_state).
enum QueuePairPath : uint32_t { kPathConnecting = 0, kPathUp = 1, kPathLost = 2, kPathMoving = 3 };
// kTransportVendor, since 1.3: not a queue pair but all that the vendor's engine moves between this rank and
// one peer, one way, as its profiler tells: no addresses, no histogram. Messages are its network steps.
// A plugin: a network plugin of the user's, of which only whole messages are seen.
enum TransportKind : uint16_t {
  kTransportTcp = 1,
  kTransportVerbs = 2,
  kTransportShm = 3,
  kTransportVendor = 4,
  kTransportPlugin = 5,
};

struct Endpoint {
  uint8_t address[16];  // IPv6, or IPv4 mapped into it
  uint16_t port;
  uint16_t reserved[3];
};
static_assert(sizeof(Endpoint) == 24);

// Latency of a chunk, normalised by its size, in half octaves: bucket i counts those from
// 2^(4 + i/2) to 2^(4 + (i+1)/2) ns per KiB, the first and the last also what lies beyond. Chunks below
// kLatencyFloorBytes count as that large: their latency is that of a message, not of its bytes.
inline constexpr int kLatencyBuckets = 32;
inline constexpr uint64_t kLatencyFloorBytes = 16384;

inline int LatencyBucket(uint64_t latency_ns, uint64_t bytes) {
  if (latency_ns >= uint64_t{1} << 53) return kLatencyBuckets - 1;  // months; the product would overflow
  const uint64_t per_kib = latency_ns * 1024 / (bytes < kLatencyFloorBytes ? kLatencyFloorBytes : bytes);
  if (per_kib < 16) return 0;
  const int octave = 63 - __builtin_clzll(per_kib);
  const int half = (per_kib >> (octave - 4)) >= 23 ? 1 : 0;  // sqrt(2) is about 23/16
  const int bucket = 2 * (octave - 4) + half;
  return bucket < kLatencyBuckets ? bucket : kLatencyBuckets - 1;
}

// One queue pair of a connection, seen from this end. A connection carries data one way. A message of the
// connection is cut into chunks; `messages` below are chunks of this queue pair.
struct QueuePairSlot {
  // Line 0: identity.
  uint32_t phase;
  uint32_t generation;
  uint32_t communicator_slot;
  uint32_t direction;
  int32_t peer;  // rank in the communicator; -1: not known
  uint16_t channel;
  uint16_t index;  // of this queue pair in its connection
  uint64_t queue_pair_number;
  uint16_t transport;
  uint16_t reserved0;
  uint32_t communicator_generation;
  uint64_t created_ticks;
  uint64_t error;  // errno that ended it; 0 while it lives
  uint64_t reserved0b;
  // Line 1: addresses.
  Endpoint local;
  Endpoint remote;
  uint32_t peer_number;  // since 1.6, verbs: of the other end's queue pair, by which the ends find each other
  uint8_t reserved1[12];
  // Line 2: progress. Sender: posted by us, completed = acknowledged by the receiver.
  // Receiver: posted = receives posted, completed = received whole; moved_bytes also counts the part
  // of a message that has come or gone so far.
  uint64_t posted_messages;
  uint64_t posted_bytes;
  uint64_t completed_messages;
  uint64_t completed_bytes;
  uint64_t moved_bytes;
  uint64_t last_post_ticks;
  uint64_t last_progress_ticks;
  uint64_t last_heard_ticks;  // sender, since 1.1: any frame from the receiver, which speaks once a second
  // Line 3: times. Sender: from post to completion. Receiver: its wait, from posting the receive to
  // the first byte of the message's data (0 when the data was there before), on the queue pair where it came.
  uint64_t latency_sum_ticks;
  uint64_t latency_max_ticks;
  uint64_t wait_sum_ticks;
  uint64_t wait_max_ticks;
  // Since 1.2: what became of its path. Streams of it that died and were closed by the receiver; and, sender:
  // 0 connecting, 1 live, 2 dead and not closed by the receiver yet, 3 on its way to another path.
  uint32_t fences;
  uint32_t path_state;
  uint64_t reserved3[3];
  // Lines 4 and 5, since 1.1: what completed chunks cost their path (sender): time from posting, or from the
  // completion of the chunk before it, to completion.
  uint32_t latency_histogram[kLatencyBuckets];
  // Line 6, since 1.1, of the connection as a whole; only where `index` is 0. Sender: messages handed
  // over, allowed by the receiver (clear to send), acknowledged. Receiver: receives posted, announced to
  // the sender, filled.
  uint64_t wanted_messages;
  uint64_t granted_messages;
  uint64_t done_messages;
  uint64_t wanted_bytes;
  uint64_t done_bytes;
  uint64_t last_wanted_ticks;
  uint64_t last_done_ticks;
  uint64_t reserved6;
  // Line 7, since 1.1, receiver, where `index` is 0: the wait for the first message of each operation,
  // which says how late the sender came; the waits inside an operation say how fast the data flow.
  uint64_t first_waits;
  uint64_t first_wait_sum_ticks;
  uint64_t first_wait_max_ticks;
  // Since 1.3, sender, transport vendor: for the kernel to fill the step (how late this rank is itself), and
  // for the receiver to let it go.
  uint64_t gpu_wait_sum_ticks;
  uint64_t gpu_wait_max_ticks;
  uint64_t credit_wait_sum_ticks;
  uint64_t credit_wait_max_ticks;
  uint64_t reserved7;
};
static_assert(sizeof(QueuePairSlot) == 512);
static_assert(offsetof(QueuePairSlot, latency_histogram) == 256);
static_assert(offsetof(QueuePairSlot, wanted_messages) == 384);
static_assert(offsetof(QueuePairSlot, first_waits) == 448);
static_assert(offsetof(QueuePairSlot, local) == 64);
static_assert(offsetof(QueuePairSlot, posted_messages) == 128);
static_assert(offsetof(QueuePairSlot, latency_sum_ticks) == 192);
inline constexpr uint32_t kQueuePairSlotBytesV10 = 256;

struct RingHeader {
  uint64_t head;         // records ever written; the newest is at (head - 1) % capacity
  uint32_t thread_id;    // of the writer; 0 when the ring is not leased
  uint32_t lease_count;  // times that it was leased
  uint64_t reserved[6];
};
static_assert(sizeof(RingHeader) == 64);

enum RecordType : uint16_t {
  kRecordNone = 0,
  kRecordOperation = 1,  // one operation, written when it has finished
  kRecordMessage = 2,    // one message of a queue pair, written when it has completed (fine level)
  kRecordMark = 3,       // since 1.4: what the program did itself, written when it is over (fine level)
};

// What a mark is of. The numbers are those of ccl/include/c4/marks.h.
enum MarkKind : uint32_t {
  kMarkNone = 0,
  kMarkForwardCompute = 1,
  kMarkBackwardCompute = 2,
  kMarkOptimizer = 3,
  kMarkOptimizerClipMainGrad = 4,
  kMarkGc = 5,
  kMarkStep = 6,  // a whole training step
};

struct OperationRecord {
  uint64_t sequence;  // of this operation in its communicator, from 0
  uint64_t called_ticks;
  uint64_t started_ticks;
  uint64_t finished_ticks;
  OperationInfo info;
};
static_assert(sizeof(OperationRecord) == 48);

struct MessageRecord {
  uint64_t sequence;  // of this message on its queue pair, from 0
  uint64_t posted_ticks;
  uint64_t completed_ticks;
  uint64_t bytes;
  uint64_t reserved[2];
};
static_assert(sizeof(MessageRecord) == 48);

// Of no slot: `slot` and `generation` of its record are 0.
struct MarkRecord {
  uint64_t began_ticks;
  uint64_t ended_ticks;
  int64_t step;         // of kMarkStep; -1 otherwise
  int32_t micro_batch;  // -1: not said
  int32_t chunk;        // model chunk within the stage; -1: not said
  uint32_t kind;
  uint32_t reserved[3];
};
static_assert(sizeof(MarkRecord) == 48);

struct Record {
  uint16_t type;
  uint16_t flags;
  uint32_t slot;        // communicator slot, or queue pair slot for messages
  uint32_t generation;  // of that slot
  uint32_t reserved;
  union {
    OperationRecord operation;
    MessageRecord message;
    MarkRecord mark;
    uint8_t bytes[48];
  };
};
static_assert(sizeof(Record) == 64);

}  // namespace c4::wire
