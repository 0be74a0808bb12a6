#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 21> kVerbs = {
      &kRunVerb,    &kVerdictsVerb, &kIncidentVerb, &kStatusVerb,   &kJobsVerb, &kMatrixVerb, &kLevelVerb,
      &kRecordVerb, &kReplayVerb,   &kPathsVerb,    &kTopologyVerb, &kSmonVerb, &kWhatIfVerb, &kHangVerb,
      &kFabricVerb, &kInjectVerb,   &kEnvVerb,      &kInstallVerb,  &kPkiVerb,  &kDoctorVerb, &kDemoVerb};
  return kVerbs;
}

}  // namespace c4::cli
