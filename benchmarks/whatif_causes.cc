// Whether the causes of slow jobs are found: 200 synthetic jobs of one known cause each, of random shape and
// strength, and a confusion matrix. `whatif_causes [JOBS [SEED]]`; exit code 1 below 98 %.
// `whatif_causes --advice [JOBS [SEED]]`: jobs of one to five causes, and whether each gain that is advised
// is what asking for it says; exit code 1 where one is not.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks/cause_jobs.h"

namespace c4::benchmarks {
namespace {

int Advice(int jobs, uint64_t seed) {
  AdviceResults results = JudgeAdvice(jobs, seed);
  for (const std::string& wrong : results.wrong) printf("%s\n", wrong.c_str());
  printf("%d jobs, seed %llu: %d gains quoted, %zu not as simulated; %d injected causes not named\n", jobs,
         static_cast<unsigned long long>(seed), results.gains, results.wrong.size(), results.left_out);
  printf("off from executing the job without the cause, in %% of a step: median, 90 %%, most\n");
  for (size_t kind = 0; kind < whatif::kCauseKinds; ++kind) {
    std::vector<double>& off = results.off_percent[kind];
    for (double& one : off) one = std::abs(one);
    std::sort(off.begin(), off.end());
    if (off.empty()) continue;
    printf("%-18s %4zu: %6.2f %6.2f %6.2f\n", CauseLabel(kind), off.size(), off[off.size() / 2],
           off[off.size() * 9 / 10], off.back());
  }
  return results.wrong.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  const bool advice = argc > 1 && std::string(argv[1]) == "--advice";
  if (advice) --argc, ++argv;
  const int jobs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;         // NOLINT
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;  // NOLINT
  if (advice) return Advice(jobs, seed);
  const CauseResults results = JudgeCauses(jobs, seed);
  printf("%d jobs, seed %llu; rows: injected, columns: found first\n\n%-18s", jobs,
         static_cast<unsigned long long>(seed), "");
  for (size_t found = 0; found <= whatif::kCauseKinds; ++found) printf(" %16s", CauseLabel(found));
  printf("\n");
  for (size_t truth = 0; truth <= whatif::kCauseKinds; ++truth) {
    printf("%-18s", CauseLabel(truth));
    for (const int count : results.confusion[truth]) printf(" %16d", count);
    printf("\n");
  }
  for (const std::string& wrong : results.wrong) printf("%s\n", wrong.c_str());
  const double right = static_cast<double>(results.right) / jobs;
  printf("\n%.1f %% right\n", 100 * right);
  return right >= 0.98 ? 0 : 1;
}

}  // namespace
}  // namespace c4::benchmarks

int main(int argc, char** argv) {
  return c4::benchmarks::Main(argc, argv);
}
