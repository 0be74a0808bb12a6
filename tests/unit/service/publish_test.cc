#include "service/publish.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "service/address.h"
#include "tests/unit/service/temporary_directory.h"

namespace c4::service {
namespace {

class PublishTest : public testing::Test {
 protected:
  static MasterEntry Entry(uint64_t epoch, int64_t pid, const std::string& host) {
    return {.job = "job", .address = "127.0.0.1:1", .epoch = epoch, .pid = pid, .host = host};
  }
  uint64_t Published() const {
    const auto entry = directory_.LookUp("job");
    return entry.ok() ? entry->epoch : 0;
  }

  const test::TemporaryDirectory root_;
  const MasterDirectory directory_{root_.path()};
  const MasterEntry own_ = Entry(100, getpid(), HostName());
};

TEST_F(PublishTest, ItsOwnEntryIsLeftAloneAndALostOnePutBack) {
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kServes);
  EXPECT_EQ(Published(), 100u);
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kServes);
}

TEST_F(PublishTest, ALaterMasterMakesTheEarlierOneStepDown) {
  ASSERT_TRUE(directory_.Publish(Entry(101, 1, "another-host")).ok());
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kReplaced);
  EXPECT_EQ(Published(), 101u);
  ASSERT_TRUE(directory_.Publish(Entry(102, getpid(), HostName())).ok());
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kReplaced);
}

// Exactly one of the two goes, also where the clocks of their hosts put the later one first.
TEST_F(PublishTest, AnEarlierMasterIsReplacedAndWillStepDown) {
  const MasterEntry earlier = Entry(99, 1, "another-host");
  ASSERT_TRUE(directory_.Publish(earlier).ok());
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kServes);
  EXPECT_EQ(Published(), 100u);
  EXPECT_EQ(KeepPublished(directory_, earlier), Standing::kReplaced);
}

TEST_F(PublishTest, NobodyMakesWayForTheDead) {
  constexpr int64_t kNobody = 0x7ffffff0;  // above the largest pid that there can be
  ASSERT_TRUE(directory_.Publish(Entry(101, kNobody, HostName())).ok());
  EXPECT_EQ(KeepPublished(directory_, own_), Standing::kServes);
  EXPECT_EQ(Published(), 100u);
}

}  // namespace
}  // namespace c4::service
