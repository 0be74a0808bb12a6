// What stamps mean, without any: which calls begin and end by them, at what times, and what is nobody's.
#include "ccl/engine/vendor/stamp_book.h"

#include "tests/unit/ccl/stamps_world.h"

namespace c4::vendor {
namespace {

constexpr uint64_t kTicksPerSecond = 1'000'000'000;
constexpr uint64_t kGpuZero = 5'000'000'000;  // the GPU's time when ours is 0
constexpr uint64_t kHearing = 1000;           // after that time we hear of a stamp
constexpr uint64_t kStream = 7;

class StampBookTest : public ::testing::Test {
 protected:
  StampBookTest() { book_.Open(world_.communicator); }
  void Stamp(uint64_t tag, uint64_t ticks) { book_.Read(tag, kGpuZero + ticks, ticks + kHearing); }
  uint64_t Begin(const StampedCall& call, bool captured = false) {
    return book_.Begin(&call, 1, captured, call.called_ticks);
  }

  StampWorld world_;
  StampBook book_{kTicksPerSecond};
};

TEST_F(StampBookTest, ACallBeginsAndEndsWithItsStamps) {
  const uint64_t tag = Begin(world_.Call(kStream, 10, 100'000));
  ASSERT_NE(tag, StampBook::kNoTag);
  EXPECT_TRUE(book_.waits());
  EXPECT_EQ(world_.Slot().started.count, 0u);
  Stamp(tag, 200'000);
  EXPECT_EQ(world_.Slot().started.count, 1u);
  EXPECT_EQ(world_.Slot().finished.count, 0u);
  EXPECT_NE(world_.Slot().seen & wire::kSeesKernels, 0u);
  Stamp(tag | StampBook::kAfter, 500'000);
  EXPECT_EQ(world_.Slot().finished.count, 1u);
  EXPECT_FALSE(book_.waits());
  ASSERT_EQ(world_.Records(), 1u);
  const wire::OperationRecord record = world_.Record(0);
  EXPECT_EQ(record.called_ticks, 100'000u);
  EXPECT_NEAR(static_cast<double>(record.started_ticks), 200'000, kHearing + 10);
  EXPECT_NEAR(static_cast<double>(record.finished_ticks), 500'000, kHearing + 10);
  EXPECT_EQ(book_.counts().read, 2u);
}

// Hearing of it late is no reason to think that it was late.
TEST_F(StampBookTest, TimesAreTheGpusAndNotThoseOfHearing) {
  for (uint64_t i = 1; i <= 300; ++i) {
    const uint64_t at = i * 10'000'000;
    const uint64_t tag = Begin(world_.Call(kStream, 10, at));
    Stamp(tag, at + 5000);
    Stamp(tag | StampBook::kAfter, at + 9000);
  }
  const uint64_t tag = Begin(world_.Call(kStream, 10, 4'000'000'000));
  book_.Read(tag, kGpuZero + 4'000'010'000, 4'005'000'000);
  book_.Read(tag | StampBook::kAfter, kGpuZero + 4'000'040'000, 4'005'000'000);
  const wire::OperationRecord record = world_.Record(300);
  EXPECT_NEAR(static_cast<double>(record.started_ticks), 4'000'010'000, 3000);
  EXPECT_NEAR(static_cast<double>(record.finished_ticks), 4'000'040'000, 3000);
  EXPECT_LT(world_.Slot().kernel_error_ns, 20'000u);
}

TEST_F(StampBookTest, ABatchIsAllItsCalls) {
  const std::vector<StampedCall> calls = {world_.Call(kStream, 10, 1000),
                                          world_.Call(kStream, 4, 1100, wire::kSend),
                                          world_.Call(kStream, 20, 1200)};
  const uint64_t tag = book_.Begin(calls.data(), calls.size(), false, 1300);
  Stamp(tag, 2000);
  EXPECT_EQ(world_.Slot().started.count, 2u);
  EXPECT_EQ(world_.Slot().p2p_started.count, 1u);
  Stamp(tag | StampBook::kAfter, 3000);
  EXPECT_EQ(world_.Slot().finished.count, 2u);
  EXPECT_EQ(world_.Slot().p2p_finished.count, 1u);
  EXPECT_EQ(world_.Records(), 3u);
}

TEST_F(StampBookTest, EachLaunchOfAGraphIsACallOfItsOwn) {
  const uint64_t tag = Begin(world_.Call(kStream, 10, 1000), true);
  EXPECT_EQ(world_.Slot().finished.count, 1u) << "done when captured";
  EXPECT_EQ(world_.Records(), 0u) << "at no time";
  EXPECT_FALSE(book_.waits());
  EXPECT_TRUE(book_.has_captured());
  for (uint64_t i = 1; i <= 3; ++i) {
    Stamp(tag, i * 100'000);
    EXPECT_EQ(world_.Slot().called.count, i + 1);
    EXPECT_EQ(world_.Slot().started.count, i + 1);
    Stamp(tag | StampBook::kAfter, i * 100'000 + 5000);
    EXPECT_EQ(world_.Slot().finished.count, i + 1);
  }
  EXPECT_EQ(world_.Records(), 3u);
  EXPECT_EQ(book_.counts().replayed, 3u);
}

TEST_F(StampBookTest, StampsOfNoBatchMeanNothing) {
  const uint64_t cancelled = Begin(world_.Call(kStream, 10, 1000));
  book_.Cancel(cancelled);
  EXPECT_FALSE(book_.waits());
  Stamp(cancelled, 2000);
  Stamp(0, 2000);
  Stamp(UINT64_MAX, 2000);
  EXPECT_EQ(world_.Slot().started.count, 0u);
  EXPECT_EQ(book_.counts().strange, 3u);
}

TEST_F(StampBookTest, AnEarlierCommunicatorsStampsAreNotThoseOfALaterOne) {
  const uint64_t plain = Begin(world_.Call(kStream, 10, 1000));
  const uint64_t captured = Begin(world_.Call(kStream, 10, 1000), true);
  book_.Close();
  EXPECT_FALSE(book_.has_captured());
  Stamp(plain, 2000);
  world_.communicator = world_.Open(2);
  book_.Open(world_.communicator);
  const uint64_t mine = Begin(world_.Call(kStream, 10, 3000));
  const uint64_t mine_captured = Begin(world_.Call(kStream + 1, 10, 3000), true);
  EXPECT_NE(mine, plain);
  EXPECT_NE(mine_captured, captured);
  Stamp(captured, 4000);
  Stamp(plain | StampBook::kAfter, 4000);
  EXPECT_EQ(world_.Slot(1).called.count, 2u);
  EXPECT_EQ(world_.Slot(1).started.count, 0u);
  Stamp(mine, 5000);
  EXPECT_EQ(world_.Slot(1).started.count, 2u) << "and the captured one behind it, which is done";
}

// As many as fit: the oldest, whose stamps never came, make room.
TEST_F(StampBookTest, BatchesWhoseStampsNeverComeMakeRoom) {
  const uint64_t first = Begin(world_.Call(kStream, 10, 1000));
  uint64_t last = first;
  for (uint32_t i = 0; i < StampBook::kOpen; ++i) last = Begin(world_.Call(kStream, 10, 1000));
  Stamp(first, 2000);
  EXPECT_EQ(book_.counts().strange, 1u);
  Stamp(last, 3000);
  Stamp(last | StampBook::kAfter, 4000);
  EXPECT_EQ(book_.counts().read, 2u);
}

TEST_F(StampBookTest, GraphsHaveABound) {
  const StampedCall call = world_.Call(kStream, 10, 1000);
  for (uint32_t i = 0; i < StampBook::kCaptured; ++i) ASSERT_NE(Begin(call, true), StampBook::kNoTag);
  EXPECT_EQ(Begin(call, true), StampBook::kNoTag);
  EXPECT_NE(Begin(call, false), StampBook::kNoTag);
}

}  // namespace
}  // namespace c4::vendor
