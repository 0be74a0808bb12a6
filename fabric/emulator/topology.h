// The operator's description of an emulated fabric, as a path master reads it (docs/formats/topology.md): who
// is linked to whom, by which addresses. Pure; any thread.
#pragma once

#include <string>

#include "fabric/emulator/spec.h"

namespace c4::fabric {

// JSON. Links carry `rate_mbps` of the spec; one that is not shaped says nothing of its rate.
std::string TopologyFile(const FabricSpec& spec);

}  // namespace c4::fabric
