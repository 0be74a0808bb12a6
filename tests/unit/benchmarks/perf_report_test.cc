// What the measuring programs tell programs that read their results.
#include "benchmarks/perf_report.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

namespace c4::perf {
namespace {

using ::testing::HasSubstr;

TEST(PerfReport, JsonHasARowForEachPassAndSize) {
  Options options;
  options.json_path = testing::TempDir() + "/perf_report_test.json";
  Report report("alltoall_perf", "a library", 4, options, false);
  Row row;
  row.bytes = 1024;
  row.count = 64;
  row.type = ncclBfloat16;
  row.out_of_place.time_us = 12.5;
  row.out_of_place.bus_gb_per_s = 2;
  row.out_of_place.wrong = 3;
  row.in_place.measured = false;
  testing::internal::CaptureStdout();
  report.Begin();
  report.Add(row);
  row.reduction = Reduction::kMulSum;
  row.root = 2;
  row.in_place = {true, 1, 1, 1, -1};
  report.Add(row);
  std::string error;
  ASSERT_TRUE(report.EndCycle(&error)) << error;
  report.End();
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_THAT(table, HasSubstr("# alltoall_perf: 4 ranks, a library"));
  EXPECT_THAT(
      table, HasSubstr("bfloat16    none      -1    12.50    0.00    2.00       3      N/A     N/A     N/A"));
  EXPECT_THAT(table, HasSubstr("bfloat16  mulsum       2"));
  EXPECT_THAT(table, HasSubstr("# Out of bounds values : 6 FAILED"));
  EXPECT_THAT(table, HasSubstr("# Avg bus bandwidth    : 1.66667"));
  std::stringstream json;
  json << std::ifstream(options.json_path).rdbuf();
  EXPECT_THAT(json.str(),
              HasSubstr(R"({"bytes":1024,"count":64,"type":"bfloat16","redop":"none","root":-1,)"));
  EXPECT_THAT(json.str(), HasSubstr(R"("in_place":null})"));
  EXPECT_THAT(json.str(), HasSubstr(R"("redop":"mulsum","root":2,)"));
  EXPECT_THAT(json.str(), HasSubstr(R"("wrong":6,)"));
  remove(options.json_path.c_str());
}

TEST(PerfReport, SaysWhyNothingWasWritten) {
  Options options;
  options.json_path = "/no-such-folder/out.json";
  std::string error;
  EXPECT_FALSE(Report("p", "l", 1, options, false).WriteJson(&error));
  EXPECT_THAT(error, HasSubstr("cannot write /no-such-folder/out.json: No such file"));
  EXPECT_TRUE(Report("p", "l", 1, options, true).WriteJson(&error));
}

}  // namespace
}  // namespace c4::perf
