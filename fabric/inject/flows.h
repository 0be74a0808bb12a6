// The data connections of a job: which ranks they join, how much they carry, which links they take. For
// injectors and judges; the product never looks here.
//
// A flow is given in the direction of its data: from the end that sends more. Needs root (it looks into every
// host of the fabric); any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "fabric/emulator/oracle.h"
#include "fabric/inject/job_view.h"

namespace c4::fabric {

// One end of a connection, as `ss -tniOHp` shows it.
struct SocketEnd {
  FiveTuple tuple;  // from this end
  std::vector<pid_t> pids;
  uint64_t sent_bytes = 0;  // that were acknowledged
  uint64_t received_bytes = 0;
  uint64_t queued_bytes = 0;  // written and not acknowledged
};
std::vector<SocketEnd> ParseSs(std::string_view text);

struct Flow {
  FiveTuple tuple;
  int from_rank = -1;
  int to_rank = -1;
  uint64_t sent_bytes = 0;
  uint64_t moved_bytes = 0;  // while it was watched
  uint64_t queued_bytes = 0;
  Path data;  // of what the tuple's source sends
  Path acks;  // of what comes back
};

// Connections between ranks of the job that have carried at least `least_bytes`, watched for `window_ms`,
// 400 ms longer where one was being opened or closed. Sorted by tuple. A flow that a router has no way for is
// left out.
absl::StatusOr<std::vector<Flow>> FlowsOf(const FabricSpec& spec, const JobView& job, int window_ms = 300,
                                          uint64_t least_bytes = 16384);

}  // namespace c4::fabric
