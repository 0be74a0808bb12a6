#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 22> kVerbs = {
      &kRunVerb,     &kVerdictsVerb, &kStatusVerb,     &kJobsVerb,   &kMatrixVerb,   &kLevelVerb,
      &kRecordVerb,  &kReplayVerb,   &kPolicyVerb,     &kPathsVerb,  &kTopologyVerb, &kSmonVerb,
      &kWhatIfVerb,  &kHangVerb,     &kIterationsVerb, &kFabricVerb, &kInjectVerb,   &kEnvVerb,
      &kInstallVerb, &kPkiVerb,      &kDoctorVerb,     &kDemoVerb};
  return kVerbs;
}

}  // namespace c4::cli
