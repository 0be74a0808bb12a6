// A machine with a deliberate fault (mutants.cmake): the checker has to find it.
#include <cstdio>

#include "tests/support/recovery_checker.h"

int main() {
  using c4::c4d::recovery::Mode;
  using c4::c4d::recovery::Rules;
  for (const Mode mode : {Mode::kAutomatic, Mode::kManual, Mode::kDryRun}) {
    for (const int cap : {1, 3}) {
      Rules rules = c4::test::RulesOfTheWalk(mode);
      rules.min_nodes = cap;
      if (cap > 1) rules.isolations_per_hour = rules.restarts_per_hour = 1;
      const c4::test::WalkResult result = c4::test::Walk(rules, 5);
      if (result.violation.empty()) continue;
      printf("found after %zu states: %s\n", result.states, result.violation.c_str());
      for (const std::string& event : result.trace) printf("  %s\n", event.c_str());
      return 0;
    }
  }
  printf("NOT found\n");
  return 1;
}
