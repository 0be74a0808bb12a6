#include "analysis/whatif/statistics.h"

#include <gtest/gtest.h>

namespace c4::whatif {
namespace {

TEST(Statistics, MeanAndMedian) {
  EXPECT_DOUBLE_EQ(Mean({}), 0);
  EXPECT_DOUBLE_EQ(Mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{}), 0);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{5}), 5);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{9, 1, 5, 2}), 3.5);
}

TEST(Statistics, CorrelationInPartsIsThatOfAll) {
  Correlation all;
  Correlation first;
  Correlation second;
  for (int i = 0; i < 50; ++i) {
    const double x = (i * 37) % 11;
    const double y = 2 * x + (i * 13) % 7;
    all.Add(x, y);
    (i < 20 ? first : second).Add(x, y);
  }
  first.Add(second);
  EXPECT_NEAR(*first.Value(), *all.Value(), 1e-12);
  EXPECT_GT(*all.Value(), 0.9);
}

TEST(Statistics, CorrelationOfWhatNeverChangesIsNone) {
  Correlation correlation;
  EXPECT_FALSE(correlation.Value());
  correlation.Add(1, 2);
  correlation.Add(1, 3);
  EXPECT_FALSE(correlation.Value());
}

}  // namespace
}  // namespace c4::whatif
