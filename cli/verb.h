// A verb of the `c4` command: one file each (verbs/verb_*.cc), listed in verbs/verbs.cc.
//
// A verb gets what follows its name on the command line, prints to stdout what was asked for and to stderr
// what went wrong, and returns the exit code. It runs on the main thread and throws nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace c4::cli {

using Arguments = std::vector<std::string>;

struct Verb {
  const char* name;
  const char* summary;  // one line for `c4 --help`
  int (*run)(const Arguments& arguments);
};

// All verbs, in the order of the help text.
std::span<const Verb* const> Verbs();

extern const Verb kRunVerb;
extern const Verb kVerdictsVerb;
extern const Verb kIncidentVerb;
extern const Verb kStatusVerb;
extern const Verb kJobsVerb;
extern const Verb kMatrixVerb;
extern const Verb kLevelVerb;
extern const Verb kRecordVerb;
extern const Verb kReplayVerb;
extern const Verb kTraceVerb;
extern const Verb kPolicyVerb;
extern const Verb kPathsVerb;
extern const Verb kTopologyVerb;
extern const Verb kEnvVerb;
extern const Verb kInstallVerb;
extern const Verb kDoctorVerb;
extern const Verb kDemoVerb;
extern const Verb kFabricVerb;
extern const Verb kInjectVerb;
extern const Verb kAlertsVerb;
extern const Verb kRecoveryVerb;
extern const Verb kIncidentsVerb;
extern const Verb kStacksVerb;
extern const Verb kSmonVerb;
extern const Verb kWhatIfVerb;
extern const Verb kHangVerb;
extern const Verb kIterationsVerb;
extern const Verb kLedgerVerb;
extern const Verb kMitigateVerb;
extern const Verb kPageVerb;
extern const Verb kPkiVerb;
extern const Verb kValidateVerb;
extern const Verb kVersionVerb;

}  // namespace c4::cli
