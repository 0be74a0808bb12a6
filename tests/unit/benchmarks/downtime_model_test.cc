// The arithmetic behind the table of downtime, and the mix of its faults.
#include "benchmarks/downtime_model.h"

#include <gtest/gtest.h>
#include <map>

namespace c4::benchmarks {
namespace {

TEST(DowntimeModelTest, TheMixIsThatOfTable1) {
  std::map<std::string, int> all, localised;
  for (const PlannedFault& fault : FaultsOfTable1(1)) {
    ++all[fault.root_cause];
    if (fault.localised) ++localised[fault.root_cause];
  }
  const std::map<std::string, int> expected = {{"CUDA error", 5},
                                               {"ECC/NVLink error", 11},
                                               {"NCCL timeout", 8},
                                               {"ACK timeout", 11},
                                               {"network, others", 5}};
  EXPECT_EQ(all, expected);
  EXPECT_EQ(localised["CUDA error"], 5);
  EXPECT_EQ(localised["ECC/NVLink error"], 11);
  EXPECT_EQ(localised["NCCL timeout"], 6);     // 75 %
  EXPECT_EQ(localised["ACK timeout"], 9);      // 81.8 %
  EXPECT_EQ(localised["network, others"], 2);  // 40 %
}

TEST(DowntimeModelTest, AMonthIsASum) {
  const MonthTerms terms = {
      .month_s = 1000, .checkpoint_every_s = 20, .hang_limit_s = 100, .diagnosis_s = -1};
  std::vector<FaultCost> faults = {
      {.interrupted = true, .detection_s = 2, .isolation_s = 1, .initialisation_s = 5},
      {.interrupted = true, .detection_s = 9, .isolation_s = 1, .initialisation_s = 5, .hung = true},
      {.interrupted = false, .detection_s = 7, .isolation_s = 7, .initialisation_s = 7}};
  Month month = MonthOf(faults, terms);
  EXPECT_DOUBLE_EQ(month.lost_work, 0.02);
  EXPECT_DOUBLE_EQ(month.detection, 0.102);
  EXPECT_DOUBLE_EQ(month.isolation, 0.002);
  EXPECT_DOUBLE_EQ(month.initialisation, 0.01);
  EXPECT_DOUBLE_EQ(month.total(), 0.134);
  month =
      MonthOf(faults, {.month_s = 1000, .checkpoint_every_s = 20, .hang_limit_s = 100, .diagnosis_s = 50});
  EXPECT_DOUBLE_EQ(month.isolation, 0.1);
  EXPECT_NEAR(kPaperJune.total(), 0.3119, 1e-9);
  EXPECT_NEAR(kPaperDecember.total(), 0.0116, 1e-9);
}

}  // namespace
}  // namespace c4::benchmarks
