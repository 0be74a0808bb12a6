// Where the libnccl.so.2 of C4 lies that belongs to this c4 program. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cli/base/status.h"

namespace c4::cli {

// Of c4 in `folder`, in the order in which they are tried: build/bin and /usr/bin alike have it in ../lib,
// and a build folder may have a portable one (make portable).
std::vector<std::string> OwnLibraryPlaces(const std::string& folder);
// The first of them that is there. NotFound otherwise.
StatusOr<std::string> OwnLibrary();

}  // namespace c4::cli
