// Frames between the library and the agent of its node (docs/formats/control.md).
//
// A SOCK_SEQPACKET unix socket, C4_RUN_DIR/agent.sock; one frame a packet, each opened by the common
// header. The library connects and says hello; the agent answers welcome, and may send a level at any
// time. Since 1.1 the library asks for paths and says which it uses; since 1.2 the agent has it hold the
// job's calls; since 1.3 it hands the program plans of who computes what (ccl/include/c4/mitigation.h).
// Either side ignores frame types that it does not know. Who is at the other end comes from the socket's
// credentials, never from the frame.
#pragma once

#include "wire/header.h"
#include "wire/segment.h"

namespace c4::wire {

inline constexpr uint64_t kControlMagic = Magic("C4CNTROL");
inline constexpr uint16_t kControlMajor = 1;
inline constexpr uint16_t kControlMinor = 3;
inline constexpr char kControlSocketName[] = "agent.sock";
inline constexpr size_t kControlMaxBytes = 4096;

enum ControlType : uint32_t {
  kControlHello = 1,    // library to agent, first
  kControlWelcome = 2,  // agent to library, first
  kControlLevel = 3,    // agent to library: record at this level from now on
  // Since 1.1:
  kControlPathAsk = 4,     // library to agent: paths for a connection that is about to be made
  kControlPathAnswer = 5,  // agent to library: the answer, or a correction
  kControlPathUse = 6,     // library to agent: what a connection uses, whenever that changes
  // Since 1.2:
  kControlHoldArm = 7,    // agent to library: hold the program's calls from that one on; again: a later one
  kControlHoldState = 8,  // library to agent: how far it has come, whenever that changes
  kControlHoldEnd = 9,    // agent to library: let them go on
  // Since 1.3:
  kControlPlan = 10,        // agent to library: a plan for the program, or that it is taken back
  kControlPlanAnswer = 11,  // library to agent: what the program, or the library for it, says of a plan
  kControlPlanStep = 12,    // library to agent: what the program says of its steps, about once a second
};

inline constexpr uint32_t kControlMostPlanes = 4;
inline constexpr uint32_t kControlMostQueuePairs = 64;

struct ControlHello {
  char segment_name[128];  // file name under C4_RUN_DIR, no '/'
  uint32_t library_version;
  uint32_t reserved;
};
static_assert(sizeof(ControlHello) == 136);

struct ControlWelcome {
  uint32_t agent_version;
  uint32_t level;  // RecordLevel
};
static_assert(sizeof(ControlWelcome) == 8);

struct ControlLevel {
  uint32_t level;  // RecordLevel
  uint32_t reserved;
};
static_assert(sizeof(ControlLevel) == 8);

// The two ends of a connection in one plane. Ports: the source's is 0, the destination's the listener's.
struct ControlPathEnds {
  Endpoint source;
  Endpoint destination;
};
static_assert(sizeof(ControlPathEnds) == 48);

struct ControlPathAsk {
  uint64_t connection;  // the sender's number for it, unique in its process
  uint64_t communicator_id;
  int32_t from_rank;
  int32_t to_rank;
  uint16_t channel;
  uint16_t queue_pairs;  // at most kControlMostQueuePairs
  uint16_t planes;       // of `ends` that hold, at most kControlMostPlanes
  uint16_t protocol;     // IPPROTO_TCP or IPPROTO_UDP
  char job[128];
  ControlPathEnds ends[kControlMostPlanes];
};
static_assert(sizeof(ControlPathAsk) == 352);

struct ControlPath {
  uint16_t source_port;  // 0: whatever the kernel picks
  uint16_t plane;        // index of the ask's ends
};

struct ControlPathAnswer {
  uint64_t connection;
  uint64_t epoch;  // a correction's is higher; 0: nobody can advise
  uint32_t queue_pairs;
  uint32_t reserved;
  ControlPath paths[kControlMostQueuePairs];  // by queue pair
};
static_assert(sizeof(ControlPathAnswer) == 280);

enum ControlPathState : uint16_t { kPathLive = 1, kPathDead = 2 };  // dead: fenced, not rebuilt yet

struct ControlPathInUse {
  Endpoint source;
  Endpoint destination;
  uint16_t state;  // ControlPathState
  uint16_t reserved;
  uint32_t fences;  // of this queue pair, in all
};
static_assert(sizeof(ControlPathInUse) == 56);

struct ControlPathUse {
  uint64_t connection;
  uint64_t epoch;        // of the answer that it follows, 0 for none
  uint32_t queue_pairs;  // 0: the connection is closed
  uint32_t reserved;
  ControlPathInUse paths[kControlMostQueuePairs];  // by queue pair
};
static_assert(sizeof(ControlPathUse) == 3608);

// What is counted until calls are held.
enum ControlHoldCount : uint32_t {
  kHoldCountCollectives = 1,  // of `communicator_id`, called by this process
  kHoldCountSteps = 2,        // that the program has marked (ccl/include/c4/marks.h)
};

// Calls are held at the first one that begins once `calls` have been counted. An arm with the number of the
// hold that is under way moves its cut; one with another number is refused.
struct ControlHoldArm {
  uint64_t hold;  // its number, never 0
  uint64_t communicator_id;
  uint64_t calls;      // UINT64_MAX: none is held, the answer says where the process is
  uint32_t count;      // ControlHoldCount
  uint32_t arrive_ms;  // without a held call for so long it ends
  uint32_t hold_ms;    // nothing of the process is held longer, all its calls of this hold together
  uint32_t reserved;
};
static_assert(sizeof(ControlHoldArm) == 40);

enum ControlHoldPhase : uint32_t {
  kHoldArmed = 1,
  kHoldHeld = 2,     // a thread is held
  kHoldQuiet = 3,    // and all that was called before has finished
  kHoldEnded = 4,    // everything goes on; `reason` says why
  kHoldRefused = 5,  // this order was not taken up, and changes nothing; `reason` says why
};

enum ControlHoldReason : uint32_t {
  kHoldNoReason = 0,
  kHoldToldTo = 1,         // the agent's end
  kHoldAgentGone = 2,      // the connection to it broke
  kHoldNotReached = 3,     // no call was held within arrive_ms
  kHoldTimeUp = 4,         // hold_ms are over
  kHoldAborted = 5,        // the program aborted or revoked a communicator meanwhile
  kHoldCapture = 6,        // a call is part of a graph that is captured
  kHoldBusy = 7,           // refused: another one is under way
  kHoldUnknown = 8,        // refused: the process is not in that communicator, or has marked no step
  kHoldNotAllowed = 9,     // refused: C4_HOLD=0
  kHoldSeveralRanks = 10,  // refused: the process has several ranks in that communicator
};

struct ControlHoldState {
  uint64_t hold;
  uint64_t calls;    // of the order that it answers
  uint64_t counted;  // by now
  uint64_t held_ns;  // since the first call of this hold was held, up to its end
  uint32_t phase;    // ControlHoldPhase
  uint32_t reason;   // ControlHoldReason
  uint32_t threads;  // that are held
  uint32_t reserved;
};
static_assert(sizeof(ControlHoldState) == 48);

struct ControlHoldEnd {
  uint64_t hold;
};
static_assert(sizeof(ControlHoldEnd) == 8);

// What a program that asks for plans is told. `now` and `next`: which worker the process is, and which one it
// becomes; their `declared` is 0.
struct ControlPlan {
  uint64_t plan;                 // its number, never 0
  uint32_t strategy;             // 2: micro-batches, 3: places; 0: the plan of this number is taken back
  uint32_t micro_batches;        // of the whole batch
  uint32_t first_micro_batch;    // of this process's data-parallel group, in the whole batch
  uint32_t group_micro_batches;  // of that group
  WorkerPlace now;
  WorkerPlace next;
  int32_t send_to;       // the job's rank that becomes what this process is; -1: nobody
  int32_t receive_from;  // the job's rank that is what this process becomes; -1: nobody
};
static_assert(sizeof(ControlPlan) == 80);

enum ControlPlanState : uint32_t {
  kPlanHeard = 1,    // the program has asked and was given it
  kPlanDone = 2,     // it is in force
  kPlanRefused = 3,  // it changes nothing; `reason` says why
};

enum ControlPlanReason : uint32_t {
  kPlanNoReason = 0,
  kPlanByProgram = 1,  // the program cannot do it
  kPlanLayout = 2,     // the process is another worker than the plan takes it for
  kPlanBusy = 3,       // another plan is being carried out
  kPlanSenseless = 4,  // its numbers cannot be
  kPlanNoWorker = 5,   // the program has not said which worker it is
};

struct ControlPlanAnswer {
  uint64_t plan;
  uint32_t state;    // ControlPlanState
  uint32_t reason;   // ControlPlanReason
  uint64_t cost_ns;  // that the job stood still for it
};
static_assert(sizeof(ControlPlanAnswer) == 24);

struct ControlPlanStep {
  int64_t step;                  // the newest that is over
  uint64_t micro_batch_ns;       // that this process computes for one, forward and backward
  uint32_t micro_batches;        // of the whole batch
  uint32_t group_micro_batches;  // of this process's group
  WorkerPlace worker;
};
static_assert(sizeof(ControlPlanStep) == 48);

// The fixed part of every frame; the body of `type` follows at header.header_bytes.
struct ControlFrame {
  Header header;  // header_bytes = sizeof(ControlFrame), total_bytes = packet
  uint32_t type;
  uint32_t reserved;
};
static_assert(sizeof(ControlFrame) == 72);
static_assert(sizeof(ControlFrame) + sizeof(ControlPathUse) <= kControlMaxBytes);

// A frame with its body, ready to be sent.
template <typename Body>
struct ControlPacket {
  ControlFrame frame;
  Body body;
};

template <typename Body>
ControlPacket<Body> MakeControlPacket(ControlType type, const ProcessIdentity& writer, const Body& body) {
  ControlPacket<Body> packet{};
  static_assert(sizeof packet == sizeof(ControlFrame) + sizeof(Body));
  Header& header = packet.frame.header;
  header.magic = kControlMagic;
  header.major = kControlMajor;
  header.minor = kControlMinor;
  header.endian = kEndianMark;
  header.header_bytes = sizeof(ControlFrame);
  header.record_bytes = sizeof(Body);
  header.total_bytes = sizeof packet;
  header.writer = writer;
  packet.frame.type = type;
  packet.body = body;
  return packet;
}

// Finds the body of a received packet: nullptr when the packet is malformed (then *fault says how) or
// its body is shorter than `body_bytes`.
inline const void* ControlBody(const void* packet, size_t bytes, size_t body_bytes, HeaderFault* fault) {
  *fault = CheckHeader(packet, bytes, kControlMagic, kControlMajor, sizeof(ControlFrame));
  if (*fault != HeaderFault::kOk) return nullptr;
  Header header;
  memcpy(&header, packet, sizeof header);
  if (header.total_bytes != bytes || header.header_bytes > bytes ||
      bytes - header.header_bytes < body_bytes) {
    *fault = HeaderFault::kSizes;
    return nullptr;
  }
  return static_cast<const char*>(packet) + header.header_bytes;
}

// Copies the body out; false as ControlBody.
template <typename Body>
bool ReadControlBody(const void* packet, size_t bytes, Body* body, HeaderFault* fault) {
  const void* found = ControlBody(packet, bytes, sizeof(Body), fault);
  if (found == nullptr) return false;
  memcpy(body, found, sizeof(Body));
  return true;
}

}  // namespace c4::wire
