// An emulated leaf-spine fabric on this machine: network namespaces joined by veth pairs, shaped by tbf,
// routed by the kernel's ECMP; and what can be done to it.
//
// The fabric outlives the object and the process: namespaces are the machine's, and what was decided about
// them stands in a state file (state.h). A Fabric is a handle to one by its name. All operations take the
// state's lock, so that any thread and process may call them; each returns when it has taken effect. What is
// called `target` is a link as people write it: leaf0-spine1, host3, host3-leaf1. Needs root; errors are
// sentences for users.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/spec.h"
#include "fabric/emulator/state.h"

namespace c4::fabric {

struct LinkStatus {
  Link link;
  bool carrier = false;
  double rate_mbps = 0;  // as asked for; 0: not shaped
  std::vector<FaultKind> faults;
};

struct FabricStatus {
  FabricState state;
  std::vector<std::string> missing;  // namespaces that should be there
  std::vector<LinkStatus> links;
  int processes = 0;  // that run in it, BIRD not counted
};

struct DownReport {
  int namespaces = 0;
  int processes = 0;  // that were ended
};

class Fabric {
 public:
  // Makes it. InvalidArgument: the spec; AlreadyExists; PermissionDenied, FailedPrecondition: not on this
  // machine, or not by this user. Nothing is left after an error.
  static absl::StatusOr<Fabric> Up(const FabricSpec& spec);
  // NotFound when none of that name is up.
  static absl::StatusOr<Fabric> Open(const std::string& name);
  // Ends what runs in it and removes it, by what exists, also when the state file is lost. NotFound when
  // nothing of it is there.
  static absl::StatusOr<DownReport> Down(const std::string& name);
  // Names of all fabrics that have a state file or namespaces.
  static std::vector<std::string> Names();

  const FabricSpec& spec() const { return spec_; }
  int management_block() const { return block_; }

  absl::StatusOr<FabricStatus> Status() const;

  // The link loses its carrier. Its ends notice at once, the other routers after `converge_ms` (the spec's if
  // negative), until when they send into it; returns then. With BIRD returns at once.
  absl::Status Break(std::string_view target, int converge_ms = -1);
  // From now on nothing gets through, in either direction, and nobody is told.
  absl::Status Cut(std::string_view target);
  absl::Status Slow(std::string_view target, double rate_mbps);
  absl::Status Loss(std::string_view target, int per_mille);
  // Takes all faults off that link, or those of one kind. HealAll also gives every host its quota and its
  // management network back.
  absl::Status Heal(std::string_view target, std::optional<FaultKind> only = std::nullopt);
  absl::Status HealAll();
  // CPU of a host's ranks in % of one core; 0: no limit; negative: what the spec says.
  absl::Status SetQuota(int host, double percent);
  // Cuts a host off the management network in silence, or joins it again.
  absl::Status Isolate(int host, bool isolated);

 private:
  Fabric(FabricSpec spec, int block) : spec_(std::move(spec)), block_(block) {}
  absl::Status AddFault(std::string_view target, const LinkFault& fault, int converge_ms);

  FabricSpec spec_;
  int block_ = 0;
};

}  // namespace c4::fabric
