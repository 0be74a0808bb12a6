#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 9> kVerbs = {&kRunVerb,    &kVerdictsVerb, &kStatusVerb,
                                                        &kMatrixVerb, &kLevelVerb,    &kRecordVerb,
                                                        &kReplayVerb, &kEnvVerb,      &kDemoVerb};
  return kVerbs;
}

}  // namespace c4::cli
