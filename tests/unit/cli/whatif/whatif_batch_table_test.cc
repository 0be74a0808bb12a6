// The tables over all jobs of a batch.
#include "cli/whatif/whatif_batch_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

namespace c4::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// What `c4 whatif --json` prints of a job of two stages, as far as the tables read it.
constexpr char kReport[] = R"({
  "job": {"name": "big, \"fast\"", "dp_size": 2, "pp_size": 2, "workers": 4, "steps": [7, 8], "operations": 96},
  "slowdown": 1.25, "waste": 0.2, "straggling": true, "step_time_s": 2.5, "step_time_ideal_s": 2.0,
  "discrepancy": 0.01, "doubtful": false, "launch_slowdown": 1.02,
  "waste_by_type": {"forward-compute": 0.15, "backward-pp-comm": 0.05},
  "m_w": 0.75, "m_s": null, "fwd_bwd_correlation": {"0": 0.1, "1": 0.95},
  "fwd_bwd_correlation_all_stages": 0.5, "speedup_if_pp_comm_zero": 1.1, "speedup_if_dp_comm_zero": 1.2,
  "slowdown_by_step": {"7": 1.25, "8": 1.5},
  "causes": [{"cause": "worker", "share": 0.8}, {"cause": "pauses", "share": 0.1}],
  "steps_left_out": {"6": "half"}, "notes": []})";

BatchRow Row(const std::string& trace, double slowdown, bool doubtful = false) {
  BatchRow row;
  row.record.trace = trace;
  row.record.state = TraceState::kAnalysed;
  row.figures.emplace();
  row.figures->slowdown = slowdown;
  row.figures->straggling = slowdown >= 1.1;
  row.figures->doubtful = doubtful;
  row.figures->discrepancy = doubtful ? 0.2 : 0.01;
  row.figures->slowdown_by_step = {slowdown, slowdown * 2};
  return row;
}

std::string Table(const std::vector<BatchRow>& rows, const std::string& file) {
  for (const NamedTable& table : CdfTables(rows)) {
    if (table.file == file) return table.text;
  }
  ADD_FAILURE() << "no table " << file;
  return "";
}

TEST(BatchFiguresOf, AReport) {
  const auto figures = ParseFigures(kReport);
  ASSERT_TRUE(figures.ok()) << figures.status();
  EXPECT_EQ(figures->workers, 4);
  EXPECT_EQ(figures->steps, 2);
  EXPECT_EQ(figures->correlation, 0.95);  // the second stage's
  EXPECT_EQ(figures->m_w, 0.75);
  EXPECT_EQ(figures->m_s, std::nullopt);
  EXPECT_EQ(figures->cause, "worker");
  EXPECT_THAT(figures->slowdown_by_step, testing::ElementsAre(1.25, 1.5));
  for (const char* text : {"", "{}", "[1]", "{\"job\": 3}"}) EXPECT_FALSE(ParseFigures(text).ok()) << text;
}

TEST(BatchJobs, AreARowEach) {
  BatchRow row;
  row.record.trace = "a.csv";
  row.record.state = TraceState::kAnalysed;
  row.figures = *ParseFigures(kReport);
  BatchRow refused;
  refused.record.trace = "b.csv";
  refused.record.state = TraceState::kRefused;
  refused.record.reason = "line 1: empty, or \"so\"";
  const std::string csv = JobsCsv({row, refused});
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < csv.size(); begin = csv.find('\n', begin) + 1) {
    lines.push_back(csv.substr(begin, csv.find('\n', begin) - begin));
  }
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], StartsWith("trace,state,reason,"));
  EXPECT_THAT(lines[0], HasSubstr(",waste_forward-compute,"));
  EXPECT_THAT(lines[1],
              StartsWith("a.csv,analysed,,0,0,\"big, \"\"fast\"\"\",2,2,4,2,1,96,1.25,0.2,1,0.01,0,"));
  EXPECT_THAT(lines[1], HasSubstr(",0.75,,0.95,0.5,1.1,1.2,worker,0.8,"));
  EXPECT_THAT(lines[2], StartsWith("b.csv,refused,\"line 1: empty, or \"\"so\"\"\",0,0,,,"));
  const auto columns = std::count(lines[0].begin(), lines[0].end(), ',');
  EXPECT_EQ(std::count(lines[1].begin(), lines[1].end(), ','), columns + 1);  // one within a name
  EXPECT_EQ(std::count(lines[2].begin(), lines[2].end(), ','), columns + 1);
}

TEST(BatchDistributions, CountUpToOne) {
  const std::vector<BatchRow> rows = {Row("a", 1.5), Row("b", 1.0), Row("c", 1.0), Row("d", 1.25)};
  EXPECT_EQ(Table(rows, "cdf_slowdown.csv"),
            "jobs,value,share\nall,1,0.5\nall,1.25,0.75\nall,1.5,1\nstraggling,1.25,0.5\nstraggling,1.5,1\n");
  // Steps against their job's slow-down.
  EXPECT_EQ(Table(rows, "cdf_step_slowdown.csv"),
            "jobs,value,share\nall,1,0.5\nall,2,1\nstraggling,1,0.5\nstraggling,2,1\n");
}

TEST(BatchDistributions, LeaveDoubtfulJobsAndMissingFiguresOut) {
  std::vector<BatchRow> rows = {Row("a", 1.5), Row("b", 3, true)};
  rows[0].figures->m_w = 0.5;
  rows.emplace_back();  // refused
  EXPECT_EQ(Table(rows, "cdf_slowdown.csv"), "jobs,value,share\nall,1.5,1\nstraggling,1.5,1\n");
  EXPECT_EQ(Table(rows, "cdf_m_w.csv"), "jobs,value,share\nall,0.5,1\nstraggling,0.5,1\n");
  EXPECT_EQ(Table(rows, "cdf_m_s.csv"), "jobs,value,share\n");
  EXPECT_THAT(Table(rows, "cdf_discrepancy.csv"), HasSubstr("all,0.2,1\n"));
}

TEST(BatchDistributions, OfATypeCountJobsThatLackIt) {
  std::vector<BatchRow> rows = {Row("a", 1.5), Row("b", 1.0)};
  rows[0].figures->waste_by_type[0] = 0.25;
  const std::string name = whatif::TypeGroupName(0);
  const std::string table = Table(rows, "cdf_waste_by_type.csv");
  EXPECT_THAT(table, HasSubstr("all," + name + ",0,0.5\nall," + name + ",0.25,1\n"));
  EXPECT_THAT(table, HasSubstr("straggling," + name + ",0.25,1\n"));
  EXPECT_THAT(table, Not(HasSubstr("straggling," + name + ",0,")));
}

TEST(BatchSummaries, CountEachState) {
  std::vector<BatchRow> rows = {Row("a", 1.5), Row("b", 3, true)};
  EXPECT_EQ(BatchSummary(rows), "2 traces: 2 analysed (2 straggling, 1 doubtful)");
  rows.resize(1);
  rows.emplace_back();
  EXPECT_EQ(BatchSummary(rows), "2 traces: 1 analysed (1 straggling, 0 doubtful), 1 crashed");
}

}  // namespace
}  // namespace c4::cli
