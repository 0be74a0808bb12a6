// Who is believed in the directory of masters, which everybody may write to.
#include <fstream>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "service/directory.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

using testing::HasSubstr;

constexpr uid_t kAnn = 12345;
constexpr uid_t kMallory = 23456;

MasterEntry Entry(const std::string& job, const std::string& address) {
  return {.job = job, .address = address, .epoch = 1, .pid = 42, .host = "node"};
}

// As root, for whom alone users can be played.
class DirectoryTrustTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can act for several users";
    ASSERT_EQ(chmod(root_.path().c_str(), 0755), 0);
    ASSERT_EQ(mkdir(directory_.path().c_str(), 01777), 0);
    ASSERT_EQ(chmod(directory_.path().c_str(), 01777), 0);
  }

  // In a process of that user; true when it ended well.
  template <typename Act>
  static bool As(uid_t uid, const Act& act) {
    const pid_t child = fork();
    if (child == 0) {
      if (setresgid(uid, uid, uid) != 0 || setresuid(uid, uid, uid) != 0) _exit(3);
      _exit(act() ? 0 : 1);
    }
    int status = 0;
    return waitpid(child, &status, 0) == child && status == 0;
  }
  bool PublishAs(uid_t uid, const std::string& job, const std::string& address) const {
    return As(uid, [&] { return directory_.Publish(Entry(job, address)).ok(); });
  }

  test::TemporaryDirectory root_;
  const MasterDirectory directory_{root_.File("masters")};
};

TEST_F(DirectoryTrustTest, TheJobsOwnerIsBelievedForHisJobAndNobodyElse) {
  ASSERT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:1"));
  EXPECT_EQ(directory_.LookUp("job", Believed(kAnn))->address, "127.0.0.1:1");
  EXPECT_EQ(directory_.LookUp("job", Believed(kAnn))->published_by, kAnn);
  const absl::Status refused = directory_.LookUp("job", Believed(kMallory)).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("uid 12345"));
  EXPECT_FALSE(directory_.LookUp("job").ok());  // root's own job, or the path master: root's word alone
}

// Whoever is first on a name keeps nobody from it.
TEST_F(DirectoryTrustTest, ASquattedNameIsNoDeadEnd) {
  ASSERT_TRUE(PublishAs(kMallory, "job", "127.0.0.1:666"));
  ASSERT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:1"));
  EXPECT_EQ(directory_.LookUp("job", Believed(kAnn))->address, "127.0.0.1:1");
  // Ann's own programs see hers, also once she has published anew, and can take it out.
  EXPECT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:2"));
  EXPECT_TRUE(As(kAnn, [&] { return directory_.LookUp("job")->address == "127.0.0.1:2"; }));
  EXPECT_TRUE(As(kAnn, [&] { return directory_.Remove("job", 1).ok(); }));
  EXPECT_FALSE(directory_.LookUp("job", Believed(kAnn)).ok());
  EXPECT_TRUE(As(kMallory, [&] { return directory_.LookUp("job").ok(); }));
}

// What is on the name is no entry at all, or one that cannot be read.
TEST_F(DirectoryTrustTest, RubbishOnANameIsNoDeadEndEither) {
  const std::string file = directory_.path() + "/job.json";
  for (const mode_t mode : {0600, 0644, 0666}) {
    unlink(file.c_str());
    std::ofstream(file) << "{\"job\": \"foo\"";
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    ASSERT_EQ(chown(file.c_str(), kMallory, kMallory), 0);
    ASSERT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:1")) << mode;
    EXPECT_EQ(directory_.LookUp("job", Believed(kAnn))->address, "127.0.0.1:1") << mode;
  }
}

TEST_F(DirectoryTrustTest, RootTakesASquattedNameBack) {
  ASSERT_TRUE(PublishAs(kMallory, "c4p", "127.0.0.1:666"));
  EXPECT_TRUE(absl::IsPermissionDenied(directory_.LookUp("c4p").status()));
  ASSERT_TRUE(directory_.Publish(Entry("c4p", "127.0.0.1:2")).ok());
  EXPECT_EQ(directory_.LookUp("c4p")->address, "127.0.0.1:2");
}

TEST_F(DirectoryTrustTest, AnEntryThatOthersMayWriteIsNobodys) {
  ASSERT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:1"));
  for (const mode_t mode : {0646, 0664, 0666}) {
    ASSERT_EQ(chmod((directory_.path() + "/job.json").c_str(), mode), 0);
    EXPECT_FALSE(directory_.LookUp("job", Believed(kAnn)).ok()) << mode;
  }
}

// Mallory names a file after Ann: the name says nothing, its owner does.
TEST_F(DirectoryTrustTest, AFileNamedAfterAnotherUserIsNotHis) {
  EXPECT_TRUE(As(kMallory, [&] {
    std::ofstream(directory_.path() + "/job@12345.json")
        << R"({"job": "job", "address": "127.0.0.1:666", "epoch": 1})";
    return true;
  }));
  EXPECT_FALSE(directory_.LookUp("job", Believed(kAnn)).ok());
  // With both names taken there is a third one.
  ASSERT_TRUE(PublishAs(kMallory, "job", "127.0.0.1:666"));
  ASSERT_TRUE(PublishAs(kAnn, "job", "127.0.0.1:1"));
  EXPECT_EQ(directory_.LookUp("job", Believed(kAnn))->address, "127.0.0.1:1");
  EXPECT_TRUE(As(kAnn, [&] { return directory_.Remove("job", 1).ok(); }));
  EXPECT_FALSE(directory_.LookUp("job", Believed(kAnn)).ok());
}

}  // namespace
}  // namespace c4::service
