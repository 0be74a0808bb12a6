// The daemons' settings as environment variables, from the tables that the daemons read themselves.
//
// Pure: the defaults are those of the code, whatever the environment says. Any thread.
#pragma once

#include <vector>

#include "cli/text/env_table.h"

namespace c4::cli {

// The library's and the command's tables, then one for each daemon, in the order in which they are shown.
KnobTables AllKnobTables();

}  // namespace c4::cli
