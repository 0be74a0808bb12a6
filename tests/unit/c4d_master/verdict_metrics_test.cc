#include "c4d_master/verdict_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "service/text.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Verdict AboutRank(int rank, const std::string& id, v1::VerdictState state = v1::VERDICT_STATE_SUSPECTED) {
  v1::Verdict verdict;
  verdict.set_id(id);
  verdict.set_syndrome(v1::SYNDROME_CRASH);
  verdict.set_state(state);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->set_rank(rank);
  verdict.mutable_culprit()->set_host("node7");
  return verdict;
}

size_t Series(const service::Metrics& metrics) {
  const std::string text = metrics.Serialise();
  size_t count = 0;
  for (size_t at = text.find("\nc4d_verdict_info{"); at != std::string::npos;
       at = text.find("\nc4d_verdict_info{", at + 1)) {
    ++count;
  }
  return count;
}

TEST(VerdictMetricsTest, AVerdictIsASeriesFromItsSuspicionUntilItIsCleared) {
  service::Metrics metrics;
  VerdictMetrics verdicts("llm", &metrics);
  verdicts.OnVerdict(AboutRank(2, "a-1"));
  EXPECT_THAT(metrics.Serialise(), HasSubstr("c4d_verdict_info{culprit=\"rank 2\",host=\"node7\",job=\"llm\","
                                             "state=\"suspected\",syndrome=\"crash\",verdict=\"a-1\"} 1"));
  verdicts.OnVerdict(AboutRank(2, "a-1", v1::VERDICT_STATE_CONFIRMED));
  EXPECT_THAT(metrics.Serialise(), HasSubstr("state=\"confirmed\""));
  EXPECT_EQ(Series(metrics), 1u);  // the suspicion has gone
  verdicts.OnVerdict(AboutRank(2, "a-1", v1::VERDICT_STATE_CONFIRMED));
  EXPECT_EQ(Series(metrics), 1u);
  verdicts.OnVerdict(AboutRank(2, "a-1", v1::VERDICT_STATE_CLEARED));
  EXPECT_EQ(Series(metrics), 0u);
  verdicts.OnVerdict(AboutRank(3, "a-2", v1::VERDICT_STATE_CLEARED));  // of an earlier master
  EXPECT_EQ(Series(metrics), 0u);
}

TEST(VerdictMetricsTest, ThereAreNeverMoreSeriesThanTheLimit) {
  service::Metrics metrics;
  VerdictMetrics verdicts("llm", &metrics);
  for (int i = 0; i < 1000; ++i) verdicts.OnVerdict(AboutRank(i, service::Concat("a-", i)));
  EXPECT_EQ(Series(metrics), VerdictMetrics::kMaxSeries);
  for (int i = 0; i < 1000; ++i) {
    verdicts.OnVerdict(AboutRank(i, service::Concat("a-", i), v1::VERDICT_STATE_CLEARED));
  }
  EXPECT_EQ(Series(metrics), 0u);
  verdicts.OnVerdict(AboutRank(1, "b-1"));
  EXPECT_EQ(Series(metrics), 1u);
}

TEST(VerdictMetricsTest, NamesOfOthersAreMadeFitForLabels) {
  service::Metrics metrics;
  VerdictMetrics verdicts("job \xff\n\"x\"", &metrics);
  v1::Verdict verdict = AboutRank(0, "a-1");
  verdict.mutable_culprit()->set_host("Knoten-\xc3\xbc\x1b[31m");
  verdicts.OnVerdict(verdict);
  const std::string text = metrics.Serialise();
  EXPECT_THAT(text, HasSubstr("host=\"Knoten-\xc3\xbc?[31m\""));
  EXPECT_THAT(text, HasSubstr("job=\"job ? \\\"x\\\"\""));
  EXPECT_THAT(text, Not(HasSubstr("\xff")));
}

TEST(VerdictMetricsTest, CulpritsAreNamedWithoutWhatDiffersBetweenProcesses) {
  v1::Culprit culprit;
  culprit.set_kind(v1::CULPRIT_KIND_NIC);
  culprit.set_nic("10.3.2.2");
  EXPECT_EQ(CulpritLabel(culprit), "NIC 10.3.2.2");
  culprit.set_kind(v1::CULPRIT_KIND_LINK);
  culprit.set_cable("leaf0-spine1");
  EXPECT_EQ(CulpritLabel(culprit), "link leaf0-spine1");
  culprit.set_kind(v1::CULPRIT_KIND_NODE);
  EXPECT_EQ(CulpritLabel(culprit), "node");
  culprit.set_kind(v1::CULPRIT_KIND_CONNECTION);
  EXPECT_EQ(CulpritLabel(culprit), "connections");
  culprit.set_kind(v1::CULPRIT_KIND_AMBIGUOUS);
  EXPECT_EQ(CulpritLabel(culprit), "ambiguous");
}

}  // namespace
}  // namespace c4::c4d
