// The causes of slow jobs are found. benchmarks/whatif_causes judges more of them.
#include "benchmarks/cause_jobs.h"

#include <gtest/gtest.h>

namespace c4::benchmarks {
namespace {

TEST(CauseJobs, MostCausesAreFound) {
  constexpr int kJobs = 56;
  const CauseResults results = JudgeCauses(kJobs, 11);
  for (const std::string& wrong : results.wrong) printf("%s\n", wrong.c_str());
  EXPECT_GE(results.right, kJobs - 1);
}

TEST(CauseJobs, EveryGainIsWhatIsSimulated) {
  const AdviceResults results = JudgeAdvice(20, 12);
  for (const std::string& wrong : results.wrong) printf("%s\n", wrong.c_str());
  EXPECT_TRUE(results.wrong.empty());
  EXPECT_GT(results.gains, 20);
}

}  // namespace
}  // namespace c4::benchmarks
