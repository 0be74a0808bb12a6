// SMon from end to end without threads: sessions, what they leave, and restarts, in simulated time.
#include "c4d_master/smon/smon.h"

#include <nlohmann/json.hpp>

#include "analysis/whatif/report_reader.h"
#include "c4d_master/verdict_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/smon/fake_profiles.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::c4d {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

benchmarks::SyntheticJob SlowWorker() {
  benchmarks::SyntheticJob job;
  job.slow_dp = 2;
  job.slow_stage = 1;
  job.slow_factor = 1.5;
  return job;
}

class SmonTest : public ::testing::Test {
 protected:
  SmonTest() {
    options_.job = "job";
    options_.limits = {.steps = 6, .at_most_ns = 60 * kSecondNs};
    source_.job = SlowWorker();
  }

  void Start(ProfileSource* source) {
    smon_ = std::make_unique<Smon>(options_, source, &work_, &store_, &metrics_, now_);
  }
  void Start() { Start(&source_); }
  // Another master over the same file.
  void Restart() {
    smon_.reset();
    source_.collecting = false;
    work_ = FakeWork();
    Start();
  }
  void Advance(int64_t seconds) {
    now_.monotonic_ns += seconds * kSecondNs;
    now_.unix_ns += seconds * kSecondNs;
    smon_->Tick(now_);
  }
  // A session from its beginning to its end.
  Smon::Found Profile() {
    const auto begun = smon_->Run(0, 0, now_);
    EXPECT_TRUE(begun.ok()) << begun.status();
    source_.steps = 6;
    Advance(1);
    Advance(1);
    return Newest();
  }
  Smon::Found Newest() {
    auto found = smon_->Find(0);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : Smon::Found{};
  }
  double Metric(const std::string& name) {
    const std::string text = metrics_.Serialise();
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name << " is not in\n" << text;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  Now now_ = {1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  SmonOptions options_;
  FakeProfiles source_;
  FakeWork work_;
  service::Metrics metrics_;
  const test::TemporaryDirectory directory_;
  VerdictStore file_{directory_.File("store.db")};
  SmonStore store_{file_.file(), "job"};
  std::unique_ptr<Smon> smon_;
};

TEST_F(SmonTest, ASessionEndsWithEnoughStepsAndTellsWhoIsSlow) {
  source_.not_seen = {"rank 3 marks no computation"};
  Start();
  const auto begun = smon_->Run(0, 0, now_);
  ASSERT_TRUE(begun.ok()) << begun.status();
  EXPECT_EQ(begun->number(), 1U);
  EXPECT_EQ(begun->state(), v1::SESSION_STATE_COLLECTING);
  EXPECT_TRUE(begun->requested());
  source_.steps = 5;
  Advance(10);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_COLLECTING);
  work_.analyse = false;
  source_.steps = 6;
  Advance(10);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_ANALYSING);
  EXPECT_FALSE(source_.collecting);
  EXPECT_EQ(Metric("c4d_smon_session_running"), 1);
  work_.analyse = true;
  Advance(1);

  const Smon::Found found = Newest();
  const v1::ProfilingSession& session = found.session;
  EXPECT_EQ(session.state(), v1::SESSION_STATE_ANALYSED);
  EXPECT_EQ(session.steps(), 6U);
  EXPECT_EQ(session.dp_size(), 4U);
  EXPECT_GT(session.slowdown(), 1.2);
  EXPECT_NEAR(session.waste(), 1 - 1 / session.slowdown(), 1e-12);
  ASSERT_GT(session.causes_size(), 0);
  EXPECT_EQ(session.causes(0).cause(), "worker");
  EXPECT_THAT(session.not_seen(), ::testing::ElementsAre("rank 3 marks no computation"));
  EXPECT_EQ(session.ended_unix_ns() - session.begun_unix_ns(), 20 * kSecondNs);
  // The report is the one that `c4 whatif --json` gives.
  const Json report = Json::parse(*found.report);
  EXPECT_EQ(report["slowdown"], session.slowdown());
  EXPECT_EQ(report["job"]["name"], "job");
  EXPECT_THAT(*found.text, HasSubstr("Stragglers waste"));
  const auto map = whatif::ReadWorkerMap(*found.report, std::nullopt);
  ASSERT_TRUE(map.ok()) << map.status();
  const auto slowest = std::max_element(map->slowdown.begin(), map->slowdown.end()) - map->slowdown.begin();
  EXPECT_EQ(slowest, 1 * 4 + 2);
  EXPECT_EQ(Metric("c4d_smon_slowdown_ratio"), session.slowdown());
  EXPECT_EQ(Metric("c4d_smon_session_running"), 0);
  EXPECT_EQ(Metric("c4d_smon_sessions_total{result=\"analysed\"}"), 1);
}

TEST_F(SmonTest, OneAtATimeAndByTheClockWhereStepsDoNotCome) {
  Start();
  ASSERT_TRUE(smon_->Run(1000, 30, now_).ok());
  EXPECT_THAT(std::string(smon_->Run(0, 0, now_).status().message()),
              AllOf(HasSubstr("session 1"), HasSubstr("one runs at a time")));
  source_.steps = 7;
  Advance(29);
  EXPECT_TRUE(source_.collecting);
  Advance(1);
  EXPECT_FALSE(source_.collecting);
  Advance(1);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_ANALYSED);
  EXPECT_TRUE(smon_->Run(0, 0, now_).ok());
}

TEST_F(SmonTest, LimitsOutOfRangeAreRefused) {
  Start();
  for (const auto& [steps, seconds] :
       {std::pair<uint32_t, double>{10'001, 1}, {1, -1}, {1, 86'401}, {1, NAN}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(smon_->Run(steps, seconds, now_).status()))
        << steps << " " << seconds;
  }
  EXPECT_FALSE(source_.collecting);
}

TEST_F(SmonTest, TheScheduleBeginsSessions) {
  options_.every_ns = 600 * kSecondNs;
  Start();
  Advance(599);
  EXPECT_FALSE(source_.collecting);
  Advance(1);
  EXPECT_TRUE(source_.collecting);
  EXPECT_FALSE(Newest().session.requested());
  source_.steps = 6;
  Advance(10);
  Advance(1);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_ANALYSED);
  Advance(588);
  EXPECT_FALSE(source_.collecting);
  // A master that is started again keeps to it.
  Restart();
  smon_->Tick(now_);
  EXPECT_FALSE(source_.collecting);
  Advance(1);
  EXPECT_TRUE(source_.collecting);
}

TEST_F(SmonTest, WhereNothingCanBeSeenThereIsNoFigure) {
  source_.finish = absl::NotFoundError("no rank marks its computations: call c4_mark_begin");
  Start();
  ASSERT_TRUE(smon_->Run(0, 0, now_).ok());
  source_.steps = 6;
  Advance(1);
  const Smon::Found found = Newest();
  EXPECT_EQ(found.session.state(), v1::SESSION_STATE_NOTHING_TO_ANALYSE);
  EXPECT_EQ(found.session.why(), "no rank marks its computations: call c4_mark_begin");
  EXPECT_FALSE(found.session.report_kept());
  EXPECT_THAT(*found.report, IsEmpty());
  EXPECT_THAT(smon_->History(), IsEmpty());
  EXPECT_EQ(Metric("c4d_smon_slowdown_ratio"), 0);
  EXPECT_EQ(Metric("c4d_smon_sessions_total{result=\"nothing to analyse\"}"), 1);
}

TEST_F(SmonTest, AProfileThatIsRefusedIsAFailedSession) {
  source_.job.shape.steps = 1;
  source_.job.shape.dp_size = 2;
  Start();
  ASSERT_TRUE(smon_->Run(0, 0, now_).ok());
  source_.steps = 6;
  work_.analyse = false;
  Advance(1);
  ASSERT_THAT(work_.waiting, SizeIs(1));
  work_.waiting[0].second.shape.dp_size = 3;  // against what was recorded
  work_.analyse = true;
  Advance(1);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_FAILED);
  EXPECT_THAT(Newest().session.why(), HasSubstr("cannot be analysed"));
}

TEST_F(SmonTest, WithoutASourceItSaysSoAndShowsWhatWasThere) {
  Start();
  Profile();
  smon_.reset();
  Start(nullptr);
  smon_->Tick(now_);
  const v1::ListSessionsReply reply = smon_->List(0);
  EXPECT_FALSE(reply.available());
  EXPECT_THAT(reply.not_available(), HasSubstr("no source of profiles"));
  EXPECT_EQ(reply.sessions_size(), 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(smon_->Run(0, 0, now_).status()));
}

TEST_F(SmonTest, ARestartKeepsSessionsAndFailsTheOneThatRan) {
  Start();
  const Smon::Found before = Profile();
  ASSERT_TRUE(smon_->Run(0, 0, now_).ok());
  Restart();
  const auto after = smon_->Find(1);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->session.SerializeAsString(), before.session.SerializeAsString());
  EXPECT_EQ(*after->report, *before.report);
  EXPECT_EQ(*after->text, *before.text);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_FAILED);
  EXPECT_THAT(Newest().session.why(), HasSubstr("the master ended"));
  EXPECT_EQ(Metric("c4d_smon_slowdown_ratio"), before.session.slowdown());
  EXPECT_EQ(Profile().session.number(), 3U);
  EXPECT_TRUE(absl::IsNotFound(smon_->Find(4).status()));
}

TEST_F(SmonTest, AnEndInOrderKeepsWhatWasAnalysed) {
  Start();
  ASSERT_TRUE(smon_->Run(0, 0, now_).ok());
  source_.steps = 6;
  Advance(1);
  smon_->End(now_);
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_ANALYSED);
  ASSERT_TRUE(smon_->Run(0, 0, now_).ok());
  smon_->End(now_);
  EXPECT_FALSE(source_.collecting) << "the processes keep recording";
  Restart();
  EXPECT_EQ(Newest().session.state(), v1::SESSION_STATE_FAILED);
  EXPECT_EQ(smon_->Find(1)->session.state(), v1::SESSION_STATE_ANALYSED);
}

TEST_F(SmonTest, OldReportsGoAndFiguresStay) {
  options_.retention = {.reports = 2, .report_age_ns = 3600 * kSecondNs, .sessions = 4};
  Start();
  for (int i = 0; i < 5; ++i) Profile();
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    EXPECT_TRUE(absl::IsNotFound(smon_->Find(1).status()));
    EXPECT_FALSE(smon_->Find(3)->session.report_kept());
    EXPECT_THAT(*smon_->Find(3)->report, IsEmpty());
    EXPECT_GT(smon_->Find(3)->session.slowdown(), 1);
    EXPECT_FALSE(smon_->Find(4)->report->empty());
    EXPECT_THAT(smon_->History(), SizeIs(4));
    Restart();
  }
  Advance(3601);
  Restart();
  EXPECT_FALSE(smon_->Find(5)->session.report_kept());
  EXPECT_THAT(smon_->History(), SizeIs(4));
}

TEST_F(SmonTest, AStoreThatFailsLosesNothingInMemory) {
  Start();
  ASSERT_TRUE(file_.file()->Write({.sql = "DROP TABLE smon_session"}).ok());
  const Smon::Found found = Profile();
  EXPECT_EQ(found.session.state(), v1::SESSION_STATE_ANALYSED);
  EXPECT_FALSE(found.report->empty());
  EXPECT_GE(Metric("c4d_smon_store_errors_total"), 1);
}

// Alerts hear of every session that is over, once, and can ask for the newest with figures.
TEST_F(SmonTest, TellsOfSessions) {
  std::vector<v1::ProfilingSession> told;
  options_.on_session = [&told](const v1::ProfilingSession& session, Now) { told.push_back(session); };
  Start();
  EXPECT_EQ(smon_->Newest(), nullptr);
  Profile();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].state(), v1::SESSION_STATE_ANALYSED);
  EXPECT_GT(told[0].slowdown(), 1.1);
  ASSERT_NE(smon_->Newest(), nullptr);
  EXPECT_EQ(smon_->Newest()->number(), 1U);
  Restart();
  Advance(1);
  EXPECT_THAT(told, SizeIs(1));
  ASSERT_NE(smon_->Newest(), nullptr) << "the store has it";
}

}  // namespace
}  // namespace c4::c4d
