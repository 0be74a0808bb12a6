#include "fabric/inject/job_view.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "fabric/inject/injector.h"

namespace c4::fabric {
namespace {

TEST(JobViewTest, ReadsAJobFile) {
  const auto view = ParseJobFile(
      R"({"job":"t1","fabric":"c4","incarnation":2,"launcher_pid":10,"agents":[11,0],
          "ranks":[{"rank":0,"pid":20,"host":0},{"rank":1,"pid":21,"host":1}]})");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->job, "t1");
  EXPECT_EQ(view->incarnation, 2);
  ASSERT_EQ(view->ranks.size(), 2U);
  EXPECT_EQ(view->ranks[1].host, 1);
  EXPECT_EQ(view->agents[0], 11);
}

TEST(JobViewTest, RefusesWhatIsNone) {
  EXPECT_FALSE(ParseJobFile("").ok());
  EXPECT_FALSE(ParseJobFile("{}").ok());
  EXPECT_FALSE(ParseJobFile(R"({"job":1})").ok());
}

TEST(JobViewTest, WithoutAJobItSaysWhereItLooked) {
  const auto none = FindJob("/nonexistent", "");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()), testing::HasSubstr("/nonexistent"));
}

// A child that waits, as user nobody or as root.
class Sleeper {
 public:
  explicit Sleeper(uid_t user) : pid_(fork()) {
    if (pid_ != 0) return;
    if (setpgid(0, 0) != 0 || setresuid(user, user, user) != 0) _exit(1);
    for (;;) pause();
  }
  ~Sleeper() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t pid() const { return pid_; }
  // Once it has become who it is to be.
  void Await(uid_t user) const {
    for (int i = 0; i < 2000 && !(IsOwners(user, pid_) && getpgid(pid_) == pid_); ++i) usleep(1000);
  }
  bool runs() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  const pid_t pid_;
};

// Whoever may write to the run directory can put a job's file there, for root to act on.
class ForgedJob : public testing::Test {
 protected:
  static constexpr uid_t kNobody = 65534;

  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "needs root, to be two users";
    char name[] = "/tmp/c4-test-XXXXXX";
    base_ = mkdtemp(name);
    std::filesystem::create_directory(base_ + "/run-x");
  }
  void TearDown() override {
    if (!base_.empty()) std::filesystem::remove_all(base_);
  }
  void Write(pid_t launcher, pid_t rank) const {
    const std::string path = base_ + "/run-x/job.json";
    std::ofstream(path) << absl::StrFormat(
        R"({"job":"t","fabric":"","incarnation":0,"launcher_pid":%d,"agents":[],
            "ranks":[{"rank":0,"pid":%d,"host":0}]})",
        launcher, rank);
    ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  }
  absl::Status Kill() const {
    Injector injector({.base_dir = base_, .job = "t"});
    return injector.Inject({.kind = Kind::kKill, .target = "rank0"}).status();
  }

  std::string base_;
};

TEST_F(ForgedJob, OfAnotherUserThanItsLauncherIsLeftOut) {
  Write(getpid(), getpid());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(absl::IsNotFound(FindJob(base_, "t").status()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("its launcher of user 0: it is left out"));
}

TEST_F(ForgedJob, NamesAnotherUsersProcessAndItIsNotKilled) {
  const Sleeper launcher(kNobody), victim(0), own(kNobody);
  launcher.Await(kNobody);
  victim.Await(0);
  own.Await(kNobody);
  Write(launcher.pid(), victim.pid());
  const absl::Status refused = Kill();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("is not of its owner, user 65534"));
  EXPECT_TRUE(victim.runs());
  Write(launcher.pid(), own.pid());
  EXPECT_TRUE(Kill().ok());
  for (int i = 0; i < 2000 && own.runs(); ++i) usleep(1000);
  EXPECT_FALSE(own.runs());
}

TEST_F(ForgedJob, ThatIsALinkIsNotRead) {
  const Sleeper launcher(kNobody);
  launcher.Await(kNobody);
  Write(launcher.pid(), launcher.pid());
  std::filesystem::rename(base_ + "/run-x/job.json", base_ + "/job.json");
  std::filesystem::create_symlink(base_ + "/job.json", base_ + "/run-x/job.json");
  EXPECT_TRUE(absl::IsNotFound(FindJob(base_, "t").status()));
}

}  // namespace
}  // namespace c4::fabric
