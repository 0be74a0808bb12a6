#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 33> kVerbs = {
      &kRunVerb,    &kVerdictsVerb, &kIncidentVerb, &kAlertsVerb,     &kRecoveryVerb, &kIncidentsVerb,
      &kPageVerb,   &kStatusVerb,   &kJobsVerb,     &kMatrixVerb,     &kLevelVerb,    &kRecordVerb,
      &kReplayVerb, &kTraceVerb,    &kPolicyVerb,   &kPathsVerb,      &kTopologyVerb, &kStacksVerb,
      &kSmonVerb,   &kWhatIfVerb,   &kHangVerb,     &kIterationsVerb, &kValidateVerb, &kMitigateVerb,
      &kLedgerVerb, &kFabricVerb,   &kInjectVerb,   &kEnvVerb,        &kInstallVerb,  &kPkiVerb,
      &kDoctorVerb, &kDemoVerb,     &kVersionVerb};
  return kVerbs;
}

}  // namespace c4::cli
