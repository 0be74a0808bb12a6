// A validation for a terminal and for programs: `c4 validate` of a job, and its preflight. Pure; any thread.
#pragma once

#include <string>

#include "c4/v1/validation.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

// What is slow or could not be tested comes first; then all of it as two tables.
std::string ValidationText(const v1::Validation& validation, const Screen& screen);
// One JSON document, of one line.
std::string ValidationJson(const v1::Validation& validation);
// 0, kExitSlowPart or kExitNotTested.
int ValidationExitCode(const v1::Validation& validation);

}  // namespace c4::cli
