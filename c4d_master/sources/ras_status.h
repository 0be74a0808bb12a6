// What NCCL's RAS says of a job (docs/sources.md): the answer of its port, with the protocol's own lines
// before it, as plain values. NCCL writes the answer as JSON since 2.28.7. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "service/status.h"

namespace c4::c4d {

// Beyond these an answer is refused.
inline constexpr size_t kMostRasBytes = size_t{32} << 20;
inline constexpr size_t kMostRasRanks = 1 << 20;  // of all communicators together

// One rank of a communicator, as its process answered.
struct RasRank {
  uint32_t rank = 0;        // in the communicator
  std::string host;         // an address; empty: RAS does not know it
  uint32_t pid = 0;         // 0: RAS does not know it
  int32_t init_state = 0;   // NCCL's result; 0: ready, 7: in progress
  int32_t async_error = 0;  // NCCL's result; 0 and 7 are none
  bool finalized = false;
  bool destroyed = false;
  bool aborted = false;
  uint64_t collectives = 0;  // that it has launched, of all kinds together
};

// A rank whose process did not answer.
struct RasMissingRank {
  uint32_t rank = 0;
  std::string host;
  uint32_t pid = 0;
  bool considered_dead = false;  // its peers have given up on it; else it may be slow to answer
};

struct RasCommunicator {
  uint64_t id = 0;  // NCCL's hash; mixed with the secondary one where two communicators have the same
  uint32_t size = 0;
  std::vector<RasRank> ranks;
  std::vector<RasMissingRank> missing;
};

struct RasStatus {
  std::string nccl_version;
  std::vector<RasCommunicator> communicators;
};

// What is sent to the port: all at once, as the answers come in the same order. `timeout_s`: how long RAS
// waits for processes that do not answer it.
std::string RasRequest(int timeout_s);

// All that came back until the connection was closed. InvalidArgument: it is cut off or no RAS.
// FailedPrecondition: an NCCL whose RAS does not write JSON. Both say what to do.
absl::StatusOr<RasStatus> ParseRasReply(std::string_view reply);

}  // namespace c4::c4d
