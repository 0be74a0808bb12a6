#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 17> kVerbs = {
      &kRunVerb,    &kVerdictsVerb, &kStatusVerb,   &kMatrixVerb, &kLevelVerb, &kRecordVerb,
      &kReplayVerb, &kPathsVerb,    &kTopologyVerb, &kWhatIfVerb, &kHangVerb,  &kFabricVerb,
      &kInjectVerb, &kEnvVerb,      &kInstallVerb,  &kDoctorVerb, &kDemoVerb};
  return kVerbs;
}

}  // namespace c4::cli
