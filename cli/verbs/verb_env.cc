// c4 env: the knobs of library, command and daemons and what the environment says of them.
#include "cli/text/daemon_knobs.h"
#include "cli/verb.h"
#include "cli/verbs/show_environment.h"

namespace c4::cli {
namespace {

int RunEnv(const Arguments& arguments) {
  return ShowEnvironment(arguments, AllKnobTables(), Manual::kOffered);
}

}  // namespace

constinit const Verb kEnvVerb = {"env", kEnvSummary, RunEnv};

}  // namespace c4::cli
