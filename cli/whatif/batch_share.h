// What of a machine a batch may use: what Slurm gave, what the control groups allow, what is free. Reads
// /proc and /sys; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace c4::cli {

int UsableProcessors(const std::vector<std::string>& environment);

// Mebibytes that are free; `root` stands before /proc and /sys. 0: not known.
int64_t FreeMemoryMib(const std::vector<std::string>& environment, const std::string& root);

}  // namespace c4::cli
