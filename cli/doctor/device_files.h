// Devices of a machine, or of the container that one sees of it, by their files. Any thread.
#pragma once

#include <string>

namespace c4::cli {

// How many names in `folder` are `prefix` and a number; 0 without the folder.
int NumberedNames(const std::string& folder, const std::string& prefix);
// /dev/nvidiaN. `root` is put in front; empty but in tests.
int CountGpus(const std::string& root);

}  // namespace c4::cli
