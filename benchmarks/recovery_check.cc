// Walks recovery's state machine through every interleaving of its events to a depth (tests/support/
// recovery_checker.h) and prints how many states there were: recovery_check [DEPTH]
// [automatic|manual|dry-run].
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/recovery_checker.h"

int main(int argc, char** argv) {
  using c4::c4d::recovery::Mode;
  const int depth = argc > 1 ? atoi(argv[1]) : 5;  // NOLINT(cert-err34-c): 0 is refused
  const char* const word = argc > 2 ? argv[2] : "automatic";
  const bool known =
      strcmp(word, "automatic") == 0 || strcmp(word, "manual") == 0 || strcmp(word, "dry-run") == 0;
  if (depth < 1 || depth > 20 || !known) {
    fprintf(stderr, "usage: recovery_check [DEPTH from 1 to 20] [automatic|manual|dry-run]\n");
    return 64;
  }
  const Mode mode = word[0] == 'a' ? Mode::kAutomatic : word[0] == 'm' ? Mode::kManual : Mode::kDryRun;
  const auto begin = std::chrono::steady_clock::now();
  const c4::test::WalkResult result = c4::test::Walk(c4::test::RulesOfTheWalk(mode), depth);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  printf("%s, depth %d: %zu states, %zu transitions, %.1f s: %s\n", word, depth, result.states,
         result.transitions, took.count(),
         result.violation.empty() ? "all that is guaranteed holds" : result.violation.c_str());
  for (const std::string& event : result.trace) printf("  %s\n", event.c_str());
  return result.violation.empty() ? 0 : 1;
}
