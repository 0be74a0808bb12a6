// The daemons' settings as environment variables, from the tables that the daemons read themselves.
//
// Pure: the defaults are those of the code, whatever the environment says. Any thread.
#pragma once

#include <vector>

#include "cli/env_table.h"

namespace c4::cli {

std::vector<Knob> AgentKnobs();
std::vector<Knob> JobMasterKnobs();
std::vector<Knob> PathMasterKnobs();

}  // namespace c4::cli
