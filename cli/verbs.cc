#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 7> kVerbs = {&kRunVerb,  &kVerdictsVerb, &kStatusVerb, &kEnvVerb,
                                                        &kDemoVerb, &kFabricVerb,   &kInjectVerb};
  return kVerbs;
}

}  // namespace c4::cli
