// Routing by BIRD instead of by exact delay: eBGP with BFD in every leaf and spine, one process each.
//
// The text is pure; the rest needs root and is called by Fabric under its lock. Files (configuration, log,
// control socket, process id) lie in StateFolder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "fabric/emulator/spec.h"

namespace c4::fabric {

// The configuration of a leaf or a spine; `folder` is where it may log.
std::string LeafBirdText(const FabricSpec& spec, int leaf, const std::string& folder);
std::string SpineBirdText(const FabricSpec& spec, int spine, const std::string& folder);

// FailedPrecondition with what to install.
absl::Status CheckBird();
// Starts all, and returns when every leaf has every route over all spines.
absl::Status StartBird(const FabricSpec& spec);
std::vector<int> BirdProcesses(const FabricSpec& spec);

}  // namespace c4::fabric
