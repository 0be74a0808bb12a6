#include "page/fleet.h"

#include <gmock/gmock.h>

#include "tests/unit/page/fake_source.h"

namespace c4::page {
namespace {

using test::AddVerdict;
using test::FakeSource;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

Moment At(double s) {
  return {.monotonic_ns = kSecondNs + static_cast<int64_t>(s * 1e9), .unix_ns = 1'700'000'000'000'000'000};
}

TEST(FleetTest, JobsWithOpenVerdictsStandFirst) {
  FakeSource source;
  source.Add("fine");
  AddVerdict(&source.Add("suspect"), "s-1", v1::VERDICT_STATE_SUSPECTED, "host1");
  AddVerdict(&source.Add("trouble"), "t-1", v1::VERDICT_STATE_CONFIRMED, "host2");
  FakeSource::Job& ended = source.Add("before");
  ended.job.set_state(v1::PAGE_JOB_STATE_ENDED);
  AddVerdict(&ended, "b-1", v1::VERDICT_STATE_CONFIRMED, "host2");
  Fleet fleet(&source);
  fleet.Refresh(At(0));
  const auto view = fleet.Look();
  std::vector<std::string> order;
  for (const v1::PageJob& job : view.fleet->jobs()) order.push_back(job.id());
  EXPECT_THAT(order, ElementsAre("trouble", "suspect", "fine", "before"));
  // What was open when a job ended is not wrong now.
  ASSERT_EQ(view.fleet->open_size(), 2);
  EXPECT_EQ(view.fleet->open(0).verdict().id(), "t-1");
  EXPECT_THAT(view.fleet->open(0).sentence(), HasSubstr("CONFIRMED non-communication hang: rank 2"));
  EXPECT_EQ(view.fleet->open(1).verdict().id(), "s-1");
  // host2 was named in two jobs; host1 was only ever suspected.
  ASSERT_EQ(view.fleet->offenders_size(), 1);
  EXPECT_EQ(view.fleet->offenders(0).name(), "host2");
  EXPECT_EQ(view.fleet->offenders(0).verdicts(), 2U);
  EXPECT_THAT(view.fleet->offenders(0).job_ids(), ElementsAre("before", "trouble"));
}

TEST(FleetTest, ASilentMasterIsLeftAloneForAWhileAndKeepsWhatItSaid) {
  FakeSource source;
  FakeSource::Job& job = source.Add("night");
  AddVerdict(&job, "n-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  Fleet fleet(&source);
  fleet.Refresh(At(0));
  job.silent = "the master at 1.2.3.4:5 did not answer";
  fleet.Refresh(At(1));
  EXPECT_EQ(fleet.Look().fleet->jobs(0).state(), v1::PAGE_JOB_STATE_SILENT);
  EXPECT_EQ(fleet.Look().fleet->jobs(0).trouble(), "the master at 1.2.3.4:5 did not answer");
  EXPECT_EQ(fleet.Look().fleet->open_size(), 1);
  const int calls = source.verdict_calls;
  fleet.Refresh(At(2));
  fleet.Refresh(At(4));
  EXPECT_EQ(source.verdict_calls, calls);
  job.silent.clear();
  fleet.Refresh(At(7));
  EXPECT_EQ(fleet.Look().fleet->jobs(0).state(), v1::PAGE_JOB_STATE_RUNNING);
  EXPECT_EQ(fleet.Look().fleet->jobs(0).trouble(), "");
}

TEST(FleetTest, AMasterThatWasStartedAgainKnowsAnotherHistory) {
  FakeSource source;
  FakeSource::Job& job = source.Add("night");
  AddVerdict(&job, "n-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  Fleet fleet(&source);
  fleet.Refresh(At(0));
  const uint64_t revision = fleet.Look().fleet->jobs(0).revision();
  job.job.set_master_epoch(2);
  job.verdicts.clear_verdicts();
  fleet.Refresh(At(0.1));
  EXPECT_EQ(fleet.Look().fleet->open_size(), 0);
  EXPECT_GT(fleet.Look().fleet->jobs(0).revision(), revision);
}

TEST(FleetTest, TheNumberChangesWithTheStateOnly) {
  FakeSource source;
  FakeSource::Job& job = source.Add("night");
  Fleet fleet(&source);
  EXPECT_EQ(fleet.Look().number, 0U);
  fleet.Refresh(At(0));
  EXPECT_EQ(fleet.Look().number, 1U);
  fleet.Refresh({.monotonic_ns = 3 * kSecondNs, .unix_ns = 1'700'000'099'000'000'000});
  EXPECT_EQ(fleet.Look().number, 1U);
  AddVerdict(&job, "n-1", v1::VERDICT_STATE_SUSPECTED, "host1");
  fleet.Refresh(At(4));
  EXPECT_EQ(fleet.Look().number, 2U);
  source.Remove("night");
  fleet.Refresh(At(5));
  EXPECT_EQ(fleet.Look().number, 3U);
  EXPECT_EQ(fleet.Look().fleet->jobs_size(), 0);
}

TEST(FleetTest, TenThousandVerdictsAreCut) {
  FakeSource source;
  FakeSource::Job& job = source.Add("night");
  for (int i = 0; i < 10'000; ++i) {
    AddVerdict(&job, "n-" + std::to_string(i), v1::VERDICT_STATE_CONFIRMED, "host1");
  }
  Fleet fleet(&source);
  fleet.Refresh(At(0));
  EXPECT_EQ(fleet.Look().fleet->open_size(), kMostOpen);
  EXPECT_EQ(fleet.Look().fleet->open_left_out(), 10'000U - kMostOpen);
  EXPECT_EQ(fleet.Look().fleet->jobs(0).confirmed(), 10'000U);
  const v1::PageVerdicts page = DescribeVerdicts("night", job.verdicts, 1, 2000);
  EXPECT_EQ(page.verdicts_size(), 2000);
  EXPECT_EQ(page.left_out(), 8000U);
}

TEST(FleetTest, WhoMaySeeOneJobSeesNothingOfOthers) {
  FakeSource source;
  source.note = "somebody's entry cannot be read";
  AddVerdict(&source.Add("mine"), "m-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  AddVerdict(&source.Add("theirs"), "t-1", v1::VERDICT_STATE_CONFIRMED, "host1");
  Fleet fleet(&source);
  fleet.Refresh(At(0));
  EXPECT_EQ(fleet.Look().fleet->offenders_size(), 1);
  const v1::PageFleet mine = Fleet::OfOneJob(*fleet.Look().fleet, "mine");
  EXPECT_EQ(mine.jobs_size(), 1);
  EXPECT_EQ(mine.open_size(), 1);
  EXPECT_EQ(mine.offenders_size(), 0);
  EXPECT_EQ(mine.notes_size(), 0);
  EXPECT_EQ(mine.DebugString().find("theirs"), std::string::npos);
}

}  // namespace
}  // namespace c4::page
