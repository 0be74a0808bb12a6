// The files that a command line names. Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace c4::traces {

// Directories among `words` stand for the profiles in them (*.json, *.et, also packed), by name; those in
// folders below are passed over. NotFound: a directory has none, `what` says of which kind ("profile"). Other
// errors: it cannot be read.
absl::StatusOr<std::vector<std::string>> JsonFiles(const std::vector<std::string>& words,
                                                   const std::string& what);

}  // namespace c4::traces
