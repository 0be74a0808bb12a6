// The path master's store as an operator meets it: damaged, held by another master, or not to be had at all.
// What it is for, jobs that go on unmoved, is tested on a fabric (tests/net/path_master_test.cc).
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

#include "tests/service/path_master.h"

namespace c4::service_test {
namespace {

using testing::HasSubstr;

class PathStoreTest : public testing::Test {
 protected:
  std::string Store() const { return scratch_.path() + "/c4p.db"; }
  std::unique_ptr<Process> Start(const std::string& name, const std::vector<std::string>& more = {}) {
    return StartPathMaster(scratch_.path() + "/" + name, scratch_.path() + "/" + name, more);
  }
  static bool Serves(const Process& master) {
    return Eventually(Seconds(20),
                      [&] { return master.Errors().find("serving paths") != std::string::npos; });
  }

  ScratchDir scratch_;
};

TEST_F(PathStoreTest, KilledItStartsAgainWithALaterEpoch) {
  for (const char* const name : {"first", "second"}) {
    const std::unique_ptr<Process> master = Start(name);
    ASSERT_TRUE(Serves(*master)) << master->Errors();
    EXPECT_EQ(master->Errors().find("going on from what was written down") != std::string::npos,
              name == std::string("second"));
    master->Signal(SIGKILL);
    ASSERT_TRUE(master->Wait(Seconds(10)));
    ASSERT_TRUE(std::filesystem::exists(Store())) << "the default is beside the directory";
  }
}

TEST_F(PathStoreTest, ADamagedOneIsRefusedWithAWayOn) {
  {
    const std::unique_ptr<Process> master = Start("first");
    ASSERT_TRUE(Serves(*master)) << master->Errors();
    master->Signal(SIGTERM);
    ASSERT_TRUE(master->Wait(Seconds(10)));
  }
  std::ofstream(Store(), std::ios::binary | std::ios::in).write("not a database, alas", 20);
  const std::unique_ptr<Process> master = Start("second");
  ASSERT_TRUE(master->Wait(Seconds(20))) << "it goes on with a store that it cannot read";
  EXPECT_EQ(master->exit_code(), 1);
  EXPECT_THAT(master->Errors(), HasSubstr(Store()));
  EXPECT_THAT(master->Errors(), HasSubstr("file is not a database"));
  EXPECT_THAT(master->Errors(), HasSubstr("move " + Store() + " away"));
  std::filesystem::remove(Store());
  EXPECT_TRUE(Serves(*Start("third"))) << "as it was told";
}

TEST_F(PathStoreTest, OneFileIsOneMasters) {
  const std::unique_ptr<Process> first = Start("first");
  ASSERT_TRUE(Serves(*first)) << first->Errors();
  const std::unique_ptr<Process> second = Start("second");
  ASSERT_TRUE(second->Wait(Seconds(20)));
  EXPECT_EQ(second->exit_code(), 1);
  EXPECT_THAT(second->Errors(), HasSubstr("one file is one master's"));
  EXPECT_TRUE(Serves(*Start("third", {"--store", "none"})));
}

}  // namespace
}  // namespace c4::service_test
