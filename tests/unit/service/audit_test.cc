// The audit: goes on after a restart, shows what was changed, and is no one else's file.
#include "service/audit.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

constexpr int64_t kTimeNs = 1'700'000'000'000'000'000;

AuditEntry Entry(const std::string& who) {
  return {
      .who = who, .call = "c4.v1.C4d/SetLevel", .detail = "level=FINE", .from = "1.2.3.4:5", .allowed = true};
}

class AuditTest : public testing::Test {
 protected:
  void Append(const std::string& who) {
    const auto log = AuditLog::Open(path_);
    ASSERT_TRUE(log.ok()) << log.status();
    EXPECT_TRUE((*log)->Append(Entry(who), kTimeNs).ok());
  }
  test::TemporaryDirectory directory_;
  const std::string path_ = directory_.File("audit.jsonl");
};

TEST_F(AuditTest, GoesOnAfterARestartAndIsTheOwnersAlone) {
  Append("ann");
  Append("bob \"the\nbuilder\" \xff");
  Append("carol");
  EXPECT_EQ(*VerifyAudit(path_), 3U);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_THAT(test::ReadWhole(path_), HasSubstr("2023-11-14T22:13:20.000Z"));
}

TEST_F(AuditTest, AChangedOrMissingLineShows) {
  for (const char* who : {"ann", "bob", "carol"}) Append(who);
  const std::string whole = test::ReadWhole(path_);
  std::string changed = whole;
  changed.replace(changed.find("bob"), 3, "eve");
  directory_.Write("audit.jsonl", changed);
  EXPECT_THAT(std::string(VerifyAudit(path_).status().message()), HasSubstr("line 2"));
  const size_t first = whole.find('\n') + 1;
  directory_.Write("audit.jsonl", whole.substr(0, first) + whole.substr(whole.find('\n', first) + 1));
  EXPECT_THAT(std::string(VerifyAudit(path_).status().message()), HasSubstr("line 2"));
  // The daemon keeps it for whoever wants to know, and writes on.
  Append("dave");
  EXPECT_EQ(*VerifyAudit(path_), 1U);
  size_t kept = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory_.path())) {
    if (file.path().string().find(".broken-") != std::string::npos) ++kept;
  }
  EXPECT_EQ(kept, 1U);
}

TEST_F(AuditTest, HalfALineOfAKilledDaemonIsCut) {
  Append("ann");
  directory_.Write("audit.jsonl", test::ReadWhole(path_) + "{\"n\":2,\"who");
  Append("bob");
  EXPECT_EQ(*VerifyAudit(path_), 2U);
}

TEST_F(AuditTest, AnothersFileALinkAndAnOpenOneAreRefused) {
  Append("ann");
  ASSERT_EQ(chmod(path_.c_str(), 0622), 0);
  EXPECT_FALSE(AuditLog::Open(path_).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(symlink(path_.c_str(), directory_.File("link").c_str()), 0);
  EXPECT_FALSE(AuditLog::Open(directory_.File("link")).ok());
  ASSERT_EQ(mkfifo(directory_.File("fifo").c_str(), 0600), 0);
  EXPECT_FALSE(AuditLog::Open(directory_.File("fifo")).ok());
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_FALSE(AuditLog::Open(path_).ok());
}

// An action that cannot be written down is not done; what was written of its line is taken back.
TEST_F(AuditTest, AFileThatCannotGrowRefusesTheAction) {
  Append("ann");
  const auto log = AuditLog::Open(path_);
  ASSERT_TRUE(log.ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {std::filesystem::file_size(path_) + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const absl::Status refused = (*log)->Append(Entry("bob"), kTimeNs);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("refused"));
  EXPECT_TRUE((*log)->Append(Entry("carol"), kTimeNs).ok());
  EXPECT_EQ(*VerifyAudit(path_), 2U);
}

TEST_F(AuditTest, ManyAtOnceKeepTheChain) {
  const auto log = AuditLog::Open(path_);
  ASSERT_TRUE(log.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) EXPECT_TRUE((*log)->Append(Entry("ann"), kTimeNs).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*VerifyAudit(path_), 100U);
}

}  // namespace
}  // namespace c4::service
