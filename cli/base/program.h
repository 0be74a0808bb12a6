// What the running program is called: `c4`, or in a training image `c4-install`, so that messages name
// commands that are there. Set once at the start of main; any thread after that.
#pragma once

#include <string>
#include <string_view>

namespace c4::cli {

// What does the work of `c4 install`, `c4 doctor --image` and `c4 env` where nothing else of C4's runs.
void BecomeImageProgram();

std::string ProgramName();  // "c4", "c4-install"
// How the verb is called: "c4 install" or "c4-install", "c4 doctor" or "c4-install doctor".
std::string CommandFor(std::string_view verb);

}  // namespace c4::cli
