// The page within a job's master: it shows what that master's state thread says, and of what it does not know
// who does.
#include "c4d_master/page_source.h"

#include "c4d_master/grpc_service.h"
#include "gmock/gmock.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

TEST(JobPageSource, ShowsItsOneJob) {
  FakeJob job{4, 2, "night\033[2J"};
  service::FakeClock clock{1000 * kSecondNs};
  service::Metrics metrics;
  VerdictStore store{":memory:"};
  HandlerOptions options;
  options.job = "night\033[2J";
  options.master_epoch = 5;
  C4dHandler handler(options, &store, &metrics);
  service::StateThread state_thread("c4d-state", absl::Milliseconds(5), [] {});
  JobPageSource source(options.job, 5,
                       {.handler = &handler,
                        .smon = nullptr,
                        .alerts = nullptr,
                        .recovery = nullptr,
                        .state_thread = &state_thread,
                        .clock = &clock});
  for (const auto& [name, host] : job.hosts()) {
    ASSERT_TRUE(
        state_thread.Call([&] { (void)handler.Ingest(job.Batch(name), ReadClock(clock)); }, absl::Seconds(5))
            .ok());
  }
  std::vector<std::string> notes;
  const std::vector<v1::PageJob> jobs = source.Jobs(&notes);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].job(), "night?[2J");
  EXPECT_EQ(jobs[0].state(), v1::PAGE_JOB_STATE_RUNNING);
  EXPECT_EQ(jobs[0].master_epoch(), 5U);
  EXPECT_EQ(source.Server(), v1::PAGE_SERVER_JOB_MASTER);
  const page::JobAt at{.id = jobs[0].id()};
  EXPECT_EQ(source.Status(at)->ranks_size(), 4);
  EXPECT_EQ(source.Status(at)->job(), "night?[2J");  // as a screen can show it
  EXPECT_EQ(source.Verdicts(at, true)->agents(), 2U);
  EXPECT_TRUE(source.Matrix(at, {}).ok());
  EXPECT_TRUE(source.Iterations(at, 0).ok());
  EXPECT_FALSE(source.HasPathMaster());
  EXPECT_THAT(std::string(source.Topology().status().message()), HasSubstr("c4 page"));
  state_thread.Stop();
  EXPECT_TRUE(absl::IsUnavailable(source.Status(at).status()));
}

}  // namespace
}  // namespace c4::c4d
