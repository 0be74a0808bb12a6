// What is kept about a fabric that is up: its spec and the faults in force, one JSON file a fabric,
// /dev/shm/c4/fabric/NAME.json (docs/fabric.md). Written to a temporary file and renamed, so that a reader
// sees the old state or the new one.
//
// Whoever changes a fabric holds its StateLock meanwhile; any number of processes may read. Namespaces belong
// to the machine, therefore the place is fixed and does not follow C4_RUN_DIR.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/spec.h"

namespace c4::fabric {

inline constexpr char kStateDir[] = "/dev/shm/c4/fabric";

enum class FaultKind {
  kBreak,  // the link has no carrier
  kCut,    // everything is dropped in silence, both directions
  kSlow,   // a lower rate, both directions
  kLoss,   // a share of the packets is dropped, each direction
};
const char* FaultName(FaultKind kind);

struct LinkFault {
  FaultKind kind = FaultKind::kCut;
  Link link;
  double rate_mbps = 0;  // kSlow
  int per_mille = 0;     // kLoss
  double since_unix_s = 0;
};

struct FabricState {
  FabricSpec spec;
  int block = 0;  // of the management network
  double since_unix_s = 0;
  std::vector<LinkFault> faults;  // at most one of each kind a link
  std::set<int> isolated;         // hosts cut off the management network
  std::map<int, double> quotas;   // of hosts that have another one than the spec says
};

std::string StateText(const FabricState& state);
absl::StatusOr<FabricState> ParseState(std::string_view text);

std::string StatePath(const std::string& name);
// Where BIRD's files go.
std::string StateFolder(const std::string& name);
absl::StatusOr<FabricState> LoadState(const std::string& name);
absl::Status SaveState(const FabricState& state);
void RemoveState(const std::string& name);
// Names of the fabrics that have a state file.
std::vector<std::string> StateNames();

// Exclusive among processes and objects, held until the object goes. A name that is no fabric's ("") is the
// lock of all names: for the choice of a management network.
class StateLock {
 public:
  static absl::StatusOr<StateLock> Take(const std::string& name);
  StateLock(StateLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;
  ~StateLock();

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  int fd_;
};

double UnixNow();

}  // namespace c4::fabric
