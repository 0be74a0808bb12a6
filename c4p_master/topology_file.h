// The network from the operator's file (docs/formats/topology.md): who is linked to whom, and which addresses
// answer for what. Errors name the line and say what is wrong with it.
//
// Pure, apart from reading the file; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "c4p_master/topology.h"

namespace c4::c4p {

// InvalidArgument: "line 12: ...".
absl::StatusOr<Topology> ParseTopology(std::string_view text);
// Also NotFound and the like when the file cannot be read; every message begins with its path.
absl::StatusOr<Topology> ReadTopologyFile(const std::string& path);

}  // namespace c4::c4p
