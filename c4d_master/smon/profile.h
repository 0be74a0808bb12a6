// What the processes of a job did one by one during a profiling session, as plain values: collected from
// telemetry by ProfileCollector, made into the records of the what-if analysis by JoinProfile.
//
// Times are on the clock of their node (`*_ns`); `clock` says how that relates to the master's. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c4d_master/job_state.h"

namespace c4::c4d {

// The numbers are those of c4.v1.MarkKind.
enum class MarkKind : uint8_t {
  kNone = 0,
  kForwardCompute = 1,
  kBackwardCompute = 2,
  kOptimizer = 3,
  kOptimizerClipMainGrad = 4,
  kGc = 5,
  kStep = 6,
};

struct MarkedSpan {
  int64_t began_ns = 0;
  int64_t ended_ns = 0;
  int32_t step = -1;
  int32_t micro_batch = -1;
  int32_t chunk = -1;
  uint32_t clock = 0;  // index into ProfiledNode::clocks
  MarkKind kind = MarkKind::kNone;
};

struct CommunicationSpan {
  uint64_t communicator_id = 0;
  int64_t called_ns = 0;
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  uint64_t count = 0;
  uint64_t sequence = 0;  // in its communicator; of sends and receives of their own
  int32_t root = -1;      // root or peer
  uint32_t clock = 0;
  uint8_t function = 0;   // c4.v1.Function
  uint8_t data_type = 0;  // NCCL's number
};

// Which worker the program says that it is.
struct DeclaredWorker {
  int dp_rank = 0;
  int stage = 0;
  int tp_rank = 0;
  int cp_rank = 0;
  int dp_size = 1;
  int pp_size = 1;
  int tp_size = 1;
  int cp_size = 1;
  int vpp_size = 1;
  int layers = 0;

  friend bool operator==(const DeclaredWorker&, const DeclaredWorker&) = default;
};

struct ProfiledMembership {
  uint32_t rank = 0;
  uint32_t rank_count = 0;
  bool vendor = false;        // the vendor's engine runs it, on GPUs
  bool sees_kernels = false;  // and its kernels are seen
};

struct ProfiledProcess {
  size_t node = 0;    // index into Profile::nodes
  int32_t rank = -1;  // the job's
  std::optional<DeclaredWorker> worker;
  std::map<uint64_t, ProfiledMembership> communicators;  // by communicator
  std::vector<CommunicationSpan> operations;
  std::vector<MarkedSpan> marks;
  int steps = 0;             // of the marks
  uint64_t left_out = 0;     // entries that did not come through
  uint64_t overwritten = 0;  // records, by the process, before its agent read them
};

// Master's clock minus node's; nothing in `error_ns`: nobody knows how far that may be off.
struct ProfileClock {
  int64_t offset_ns = 0;
  std::optional<int64_t> error_ns;
};

struct ProfiledNode {
  std::string host;
  std::vector<ProfileClock> clocks;  // one a batch
};

struct Profile {
  std::string job;
  std::vector<ProfiledNode> nodes;
  std::map<ProcessKey, ProfiledProcess> processes;
  uint64_t batches = 0;
  uint64_t over_limit = 0;  // entries beyond what is kept
};

}  // namespace c4::c4d
