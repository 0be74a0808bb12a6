// `c4 env` and `c4-install env`: prints tables of variables with what the environment says of them. Prints to
// stdout and returns the exit code, as a verb does.
#pragma once

#include "cli/text/env_table.h"
#include "cli/verb.h"

namespace c4::cli {

inline constexpr char kEnvSummary[] = "show the library's environment variables and their values";

enum class Manual { kOffered, kNot };  // --markdown, which writes docs/knobs.md

int ShowEnvironment(const Arguments& arguments, KnobTables tables, Manual manual);

}  // namespace c4::cli
