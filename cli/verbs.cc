#include <array>

#include "cli/verb.h"

namespace c4::cli {

std::span<const Verb* const> Verbs() {
  static constexpr std::array<const Verb*, 6> kVerbs = {&kRunVerb, &kVerdictsVerb, &kStatusVerb,   &kEnvVerb,
                                                        &kDemoVerb, &kFabricVerb};
  return kVerbs;
}

}  // namespace c4::cli
