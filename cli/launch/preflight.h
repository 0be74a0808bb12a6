// `c4 validate --preflight`: tests devices and links before a job begins, without daemons. One process a
// rank, as a job would be started (c4 run, srun, mpirun, torchrun); rank 0 tells all what to do and says what
// came of it, the others end with the same exit code. One process alone tests its machine's devices.
//
//   to rank 0     join RANK TESTERS HOST        first
//                 TESTER LINE                   what a tester of it says (c4a/tester/protocol.h)
//   from rank 0   TESTER LINE                   what the tester is to do
//                 end CODE
//
// Blocks until it is over; threads of its own while it does. Errors are sentences for the user.
#pragma once

#include <string>
#include <vector>

#include "c4/v1/validation.pb.h"
#include "service/status.h"

namespace c4::cli {

struct PreflightOptions {
  int rank = 0;
  int ranks = 1;
  std::string rendezvous;  // host:port where rank 0 is reached; not needed for one rank
  std::string gpu;  // number of the GPU that is tested, "none"; empty: by local_rank, or all where alone
  int local_rank = 0;
  double join_s = 60;   // for all ranks to come
  double device_s = 1;  // for the tests of a device
  double transfer_s = 0.25;
  bool all_pairs = false;  // of hosts; otherwise a ring, and all pairs of up to kFewHosts
  bool no_devices = false;
  bool no_links = false;
};
inline constexpr size_t kFewHosts = 16;

// Fills in rank, ranks, local rank and rendezvous from what the launcher has set (`environment` as
// NAME=value) where they are not given: -1, 0, empty. InvalidArgument: it contradicts itself, or rank 0
// cannot be found.
absl::Status FillFromLauncher(const std::vector<std::string>& environment, PreflightOptions* options);

// Of rank 0: what was found. Of the others: nothing, and `*exit_code` as rank 0 says.
absl::StatusOr<v1::Validation> RunPreflight(const PreflightOptions& options, int* exit_code);

}  // namespace c4::cli
