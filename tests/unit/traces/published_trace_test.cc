// The published trace: every figure that its authors' analyser gives, within a millionth of it.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include <nlohmann/json.hpp>

#include "analysis/whatif/analysis.h"
#include "traces/byte_source.h"
#include "traces/job_metadata.h"
#include "traces/table_reader.h"

namespace c4::whatif {
namespace {

using nlohmann::json;

constexpr double kRelative = 1e-6;

std::string DataFile(const std::string& name) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  return std::string(source != nullptr ? source : ".") + "/tests/data/whatif/" + name;
}

std::string Text(const std::string& path) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(path);
  EXPECT_TRUE(source.ok()) << source.status();
  absl::StatusOr<std::string> text = traces::ReadAll(source->get(), 1 << 24);
  EXPECT_TRUE(text.ok()) << text.status();
  return *text;
}

class PublishedTrace : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<traces::ByteSource>> source =
        traces::OpenBytes(DataFile("trace-ST.csv.gz"));
    ASSERT_TRUE(source.ok()) << source.status();
    const absl::StatusOr<traces::TableContents> table = traces::ReadTable(source->get(), {});
    ASSERT_TRUE(table.ok()) << table.status();
    const absl::StatusOr<JobShape> shape = traces::ParseJobMetadata(Text(DataFile("meta-ST.yaml")));
    ASSERT_TRUE(shape.ok()) << shape.status();
    absl::StatusOr<Trace> trace = BuildTrace(table->records, *shape);
    ASSERT_TRUE(trace.ok()) << trace.status();
    absl::StatusOr<Job> made = MakeJob(*std::move(trace));
    ASSERT_TRUE(made.ok()) << made.status();
    job = new Job(*std::move(made));
    absl::StatusOr<Analysis> analysed = Analyse(*job, 2);
    ASSERT_TRUE(analysed.ok()) << analysed.status();
    analysis = new Analysis(*std::move(analysed));
    expected = new json(json::parse(std::ifstream(DataFile("expected-ST.json"))));
  }
  static void TearDownTestSuite() {
    delete job;
    delete analysis;
    delete expected;
  }

  static const json& Code() { return expected->at("paper_code"); }
  static const json& Derived() { return expected->at("derived"); }

  static void Same(double found, const json& figure, const std::string& what) {
    const auto value = figure.get<double>();
    EXPECT_NEAR(found, value, kRelative * std::abs(value)) << what;
  }

  static Job* job;
  static Analysis* analysis;
  static json* expected;
};

Job* PublishedTrace::job = nullptr;
Analysis* PublishedTrace::analysis = nullptr;
json* PublishedTrace::expected = nullptr;

TEST_F(PublishedTrace, IsTakenWhole) {
  EXPECT_TRUE(job->trace.notes.empty()) << job->trace.notes.front();
  EXPECT_EQ(job->trace.steps.size(), 32U);
  EXPECT_EQ(job->trace.operations.size(), 106U);
  EXPECT_EQ(job->trace.steps, expected->at("info").at("step_ids").get<std::vector<int>>());
  for (const auto& [name, count] : expected->at("info").at("ops_by_type").items()) {
    EXPECT_EQ(job->durations.counts[Index(*ParseOperationType(name))], count.get<size_t>()) << name;
  }
}

TEST_F(PublishedTrace, SlowdownAndStepTimes) {
  Same(analysis->slowdown, Code().at("S_blocking_slowdown"), "S");
  Same(analysis->waste(), Code().at("waste_1_minus_1_over_S"), "waste");
  Same(analysis->launch_slowdown, Code().at("launch_slowdown"), "launch slow-down");
  Same(analysis->step_time_measured_s, Code().at("mean_step_time_base"), "measured step time");
  Same(analysis->step_time_s, Code().at("mean_step_time_nodelay_T"), "T");
  Same(analysis->step_time_ideal_s, Code().at("mean_step_time_ideal"), "ideal T");
  Same(analysis->discrepancy, Code().at("simulation_discrepancy_abs(T-base)/base"), "discrepancy");
}

TEST_F(PublishedTrace, IdealDurations) {
  for (const auto& [name, ideal] : Derived().at("ideal_duration_by_optype").items()) {
    const size_t type = Index(*ParseOperationType(name));
    Same(job->durations.ideal_exact_s[type], ideal.at("value"), name);
    EXPECT_EQ(job->durations.counts[type], ideal.at("n").get<size_t>()) << name;
  }
}

TEST_F(PublishedTrace, ByType) {
  ASSERT_EQ(analysis->type_groups.size(), Code().at("S_by_optype").size());
  for (size_t i = 0; i < analysis->type_groups.size(); ++i) {
    const std::string name = TypeGroupName(analysis->type_groups[i]);
    const double slowdown = analysis->by_type[i].overall;
    Same(slowdown, Code().at("S_by_optype").at(name), name);
    // Some wastes are differences of a millionth: judged as what they are differences from.
    EXPECT_NEAR(1 - 1 / slowdown, Code().at("waste_by_optype").at(name).get<double>(), kRelative) << name;
  }
}

TEST_F(PublishedTrace, ByRankAndStage) {
  for (int dp = 0; dp < 2; ++dp) {
    Same(analysis->by_dp[static_cast<size_t>(dp)].overall, Code().at("S_by_dp_rank").at(std::to_string(dp)),
         "dp");
    for (int stage = 0; stage < 4; ++stage) {
      Same(analysis->by_worker_approx[job->trace.Worker(dp, stage)],
           Code().at("heatmap_dp_x_stage_min").at(static_cast<size_t>(dp)).at(static_cast<size_t>(stage)),
           "heat map");
    }
  }
  for (int stage = 0; stage < 4; ++stage) {
    Same(analysis->by_stage[static_cast<size_t>(stage)].overall,
         Code().at("S_by_stage").at(std::to_string(stage)), "stage");
  }
  for (const auto& [rank, slowdown] : Derived().at("S_w_exact_by_rank").items()) {
    const json& place = Derived().at("rank_to_dp_stage").at(rank);
    const auto dp = place.at(0).get<size_t>();
    const auto stage = place.at(1).get<size_t>();
    EXPECT_EQ(job->trace.Rank(static_cast<int>(dp), static_cast<int>(stage)), std::stoi(rank));
    Same(analysis->by_worker[stage * 2 + dp].overall, slowdown, "worker " + rank);
  }
}

TEST_F(PublishedTrace, SharesOfSlowestWorkersAndLastStage) {
  Same(*analysis->m_w.removed, Code().at("Mw").at("Mw"), "M_W");
  Same(*analysis->m_w.added, Code().at("Mw").at("add"), "M_W added");
  Same(analysis->m_w.step_time_removed_s, Code().at("Mw").at("trem"), "M_W removed");
  Same(analysis->m_w.step_time_added_s, Code().at("Mw").at("tadd"), "M_W added");
  Same(*analysis->m_s.removed, Code().at("Ms").at("Ms"), "M_S");
  Same(*analysis->m_s.added, Code().at("Ms").at("add"), "M_S added");
  Same(analysis->m_s.step_time_removed_s, Code().at("Ms").at("trem"), "M_S removed");
  Same(analysis->m_s.step_time_added_s, Code().at("Ms").at("tadd"), "M_S added");
}

TEST_F(PublishedTrace, ByStep) {
  const json& by_step = Code().at("per_step");
  for (size_t i = 0; i < job->trace.steps.size(); ++i) {
    const std::string step = std::to_string(job->trace.steps[i]);
    Same(analysis->measured_s[i], by_step.at("base").at(step), "measured");
    Same(analysis->simulated_s[i], by_step.at("nodelay").at(step), "simulated");
    Same(analysis->ideal_s[i], by_step.at("ideal").at(step), "ideal");
    Same(analysis->slowdown_by_step[i], by_step.at("S").at(step), "S");
    Same(analysis->launch_by_step[i], by_step.at("launch").at(step), "launch");
    for (size_t dp = 0; dp < 2; ++dp) {
      Same(analysis->by_dp[dp].by_step[i], by_step.at("S_by_dp_rank").at(step).at(std::to_string(dp)), "dp");
    }
    for (size_t stage = 0; stage < 4; ++stage) {
      Same(analysis->by_stage[stage].by_step[i], by_step.at("S_by_stage").at(step).at(std::to_string(stage)),
           "stage");
    }
    for (size_t group = 0; group < analysis->type_groups.size(); ++group) {
      const char* name = TypeGroupName(analysis->type_groups[group]);
      Same(analysis->by_type[group].by_step[i], by_step.at("S_by_optype").at(step).at(name), name);
    }
  }
}

TEST_F(PublishedTrace, CorrelationAndCommunicationForNothing) {
  const json& correlation = Derived().at("fwd_bwd_pearson_by_stage");
  for (size_t stage = 0; stage < 4; ++stage) {
    Same(*analysis->correlation_by_stage[stage], correlation.at(std::to_string(stage)), "correlation");
  }
  Same(*analysis->correlation, correlation.at("all_stages"), "correlation of all");
  EXPECT_EQ(analysis->correlation_pairs, Derived().at("n_pairs").get<size_t>());
  Same(analysis->speedup_if_pp_comm_zero, Derived().at("speedup_if_pp_comm_zero"), "PP");
  Same(analysis->speedup_if_dp_comm_zero, Derived().at("speedup_if_dp_comm_zero"), "DP");
}

}  // namespace
}  // namespace c4::whatif
