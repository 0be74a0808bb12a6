// The operator's program that looks at a node which was isolated: status 0 says that it is well. For drivers
// of schedulers that have no such check themselves. Blocks as a driver may; any thread.
#pragma once

#include <string>
#include <vector>

#include "c4d_master/recovery/driver.h"

namespace c4::c4d::recovery {

// `words`: the program and its words, in which "{node}" is the node's name; none: refused, for `driver`
// ("slurm") has no "check".
DriverReply CheckByProgram(const std::vector<std::string>& words, const char* driver, const std::string& node,
                           absl::Duration timeout, const Driver::Stop& stop);

}  // namespace c4::c4d::recovery
