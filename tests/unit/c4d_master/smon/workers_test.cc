// SMon's thread: an analysis survives the end.
#include "c4d_master/smon/smon_workers.h"
#include "gtest/gtest.h"

namespace c4::c4d {
namespace {

TEST(SmonWorkersTest, AnAnalysisIsStillThereAfterStop) {
  SmonWorkers workers;
  workers.Analyse(3, ProfiledJob());
  workers.Stop();
  const std::vector<Analysed> results = workers.TakeAnalysed();
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].session, 3U);
  EXPECT_FALSE(results[0].report.ok()) << "nothing was recorded";
}

}  // namespace
}  // namespace c4::c4d
