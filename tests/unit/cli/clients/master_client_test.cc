#include "cli/clients/master_client.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "service/address.h"

namespace c4::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<service::MasterEntry> kTwo = {{.job = "a", .address = "127.0.0.1:1", .epoch = 7},
                                                {.job = "b", .address = "127.0.0.1:2", .epoch = 8}};

TEST(ChooseMasterTest, TheOnlyOneNeedsNoName) {
  const absl::StatusOr<FoundMaster> found = ChooseMaster({kTwo[1]}, "", "/dir");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->job, "b");
  EXPECT_EQ(found->master.address, "127.0.0.1:2");
  EXPECT_EQ(found->epoch, 8U);
}

TEST(ChooseMasterTest, SeveralAreListed) {
  const absl::Status status = ChooseMaster(kTwo, "", "/dir").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("a, b"), HasSubstr("--job")));
  EXPECT_EQ(ChooseMaster(kTwo, "b", "/dir")->master.address, "127.0.0.1:2");
}

TEST(ChooseMasterTest, SaysWhichThereAreWhenTheNameIsWrong) {
  EXPECT_THAT(std::string(ChooseMaster(kTwo, "c", "/dir").status().message()),
              AllOf(HasSubstr("'c'"), HasSubstr("a, b"), HasSubstr("/dir")));
  EXPECT_THAT(std::string(ChooseMaster({}, "c", "/dir").status().message()),
              AllOf(HasSubstr("/dir"), HasSubstr("c4 run")));
}

TEST(FindMasterTest, EntriesOfKilledMastersNeedNotBeChosenFrom) {
  const std::string base = testing::TempDir() + "/c4_find_live_master_" + std::to_string(getpid());
  const service::MasterDirectory directory(base + "/masters");
  service::MasterEntry live = kTwo[0];
  live.host = service::HostName();
  live.pid = getpid();
  service::MasterEntry dead = kTwo[1];
  dead.host = service::HostName();
  dead.pid = 999999999;
  ASSERT_TRUE(directory.Publish(live).ok());
  ASSERT_TRUE(directory.Publish(dead).ok());
  MasterOptions options;
  options.base_dir = base;
  EXPECT_EQ(FindMaster(options)->job, "a");
  options.job = "b";  // asked for by name: let the user see that it does not answer
  EXPECT_EQ(FindMaster(options)->job, "b");
  options.job.clear();
  dead.host = "another host";  // whose processes we cannot see
  ASSERT_TRUE(directory.Publish(dead).ok());
  EXPECT_FALSE(FindMaster(options).ok());
  std::filesystem::remove_all(base);
}

TEST(FindMasterTest, LooksBelowTheRunDirectory) {
  const std::string base = testing::TempDir() + "/c4_find_master_" + std::to_string(getpid());
  const service::MasterDirectory directory(base + "/masters");
  ASSERT_TRUE(directory.Publish(kTwo[0]).ok());
  MasterOptions options;
  options.base_dir = base;
  EXPECT_EQ(FindMaster(options)->master.address, "127.0.0.1:1");
  options.address = "10.0.0.9:15141";  // goes before the directory
  EXPECT_EQ(FindMaster(options)->master.address, "10.0.0.9:15141");
  std::filesystem::remove_all(base);
}

TEST(AskMasterTest, GivesUpOnAnAddressThatNobodyAnswersAt) {
  MasterOptions options;
  options.address = "127.0.0.1:1";
  int asked = 0;
  const absl::Status status =
      AskMaster(options, absl::Milliseconds(250), [&asked](const MasterClient& client) {
        ++asked;
        return client.GetStatus(absl::Seconds(1)).status();
      });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:1"));
  EXPECT_GE(asked, 2);
}

}  // namespace
}  // namespace c4::cli
