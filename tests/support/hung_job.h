// Jobs that hang, simulated: ranks in tensor, data-parallel and pipeline groups call operations in order,
// each rank's device does them one after the other, and faults hold some of them up. What every rank then
// knows is written as PyTorch's Flight Recorder would write it. Knows nothing of how dumps are analysed.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::testing {

enum class HangFault : uint8_t { kAbsent, kDead, kStuck, kMismatch };

// How dumps are written.
enum class DumpStyle : uint8_t {
  kWhole,    // every operation, and the last ones of each group
  kOpen,     // operations that are not over alone
  kRetired,  // as of back ends other than NCCL: the state is never told, operations that are over are
             // retired, and what is said of the last ones counts transfers too
};

struct HungJobOptions {
  int tensor = 1;
  int data = 8;
  int pipeline = 1;           // stages, joined by sends and receives
  bool default_only = false;  // plain data parallelism in the default group
  std::vector<HangFault> faults;
  double lose_dumps = 0;  // share of the dumps that are lost, at random
  uint64_t seed = 0;
  DumpStyle style = DumpStyle::kWhole;
};

struct HungJob {
  struct Dump {
    int rank = 0;
    std::string json;
  };
  std::vector<Dump> dumps;
  // Ranks that are absent, dead or mismatched, that wait for nobody, and that others wait for; ascending.
  std::vector<int> culprits;
  std::vector<int> latent;                // at fault too, but nobody has come to wait for them yet
  std::vector<std::string> stuck_groups;  // of operations that all members are in and that never end
  std::vector<int> without_dump;
};

HungJob SimulateHang(const HungJobOptions& options);

}  // namespace c4::testing
