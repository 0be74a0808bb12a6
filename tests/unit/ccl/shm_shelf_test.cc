// The shelf: what several receivers get is written once, whatever the order in which they take it.
#include <algorithm>
#include <random>
#include <vector>

#include "tests/unit/ccl/shm_ends.h"

namespace c4::shm {
namespace {

std::vector<char> Noise(size_t bytes, std::mt19937* random) {
  std::vector<char> noise(bytes);
  for (char& byte : noise) byte = static_cast<char>((*random)());
  return noise;
}

TEST(Shelf, EachPartIsWrittenOnceAndFreedByItsLastReader) {
  std::vector<char> memory(3 * 100);
  Shelf shelf(memory.data(), 3, 100);
  const std::vector<char> data(250, 'x');
  {
    SharedMessage message(&shelf, 250, 150, 3);  // chunks of 150 and 100 bytes
    const uint32_t piece = message.Stage({0, 0}, data.data(), 100);
    ASSERT_NE(piece, Shelf::kNone);
    EXPECT_EQ(memory[size_t{piece} * 100 + 99], 'x');
    memory[size_t{piece} * 100] = 'y';
    EXPECT_EQ(message.Stage({0, 0}, data.data(), 100), piece);
    EXPECT_EQ(message.Stage({0, 0}, data.data(), 100), piece);
    EXPECT_EQ(memory[size_t{piece} * 100], 'y') << "written again";
    EXPECT_EQ(shelf.free_pieces(), 2u);
    message.Consumed({0, 0});
    message.Consumed({0, 0});
    EXPECT_EQ(shelf.free_pieces(), 2u);
    message.Consumed({0, 0});
    EXPECT_EQ(shelf.free_pieces(), 3u);
    EXPECT_EQ(message.Stage({0, 50}, data.data(), 50), Shelf::kNone) << "begins within a piece";
    EXPECT_NE(message.Stage({0, 100}, data.data(), 50), Shelf::kNone);
    EXPECT_NE(message.Stage({1, 0}, data.data(), 100), Shelf::kNone);
    EXPECT_EQ(shelf.free_pieces(), 1u);
  }
  EXPECT_EQ(shelf.free_pieces(), 3u) << "a message that nobody reads any more";
}

TEST(Shelf, WithoutRoomReadersGoTheirOwnWay) {
  std::vector<char> memory(100);
  Shelf shelf(memory.data(), 1, 100);
  const std::vector<char> data(100);
  SharedMessage first(&shelf, 100, 100, 2);
  SharedMessage second(&shelf, 100, 100, 3);
  EXPECT_EQ(first.Stage({0, 0}, data.data(), 100), 0u);
  EXPECT_EQ(second.Stage({0, 0}, data.data(), 100), Shelf::kNone);
  EXPECT_EQ(first.Stage({0, 0}, data.data(), 100), 0u);
  first.Consumed({0, 0});
  first.Consumed({0, 0});
  EXPECT_EQ(second.Stage({0, 0}, data.data(), 100), 0u) << "two are left";
  EXPECT_EQ(second.Stage({0, 0}, data.data(), 100), 0u);
  second.Consumed({0, 0});
  second.Consumed({0, 0});
  EXPECT_EQ(shelf.free_pieces(), 1u);
}

// Receivers of one sender, each with a connection of its own.
class Receivers {
 public:
  explicit Receivers(size_t count, const Shape& shape) : ends_(count) {
    for (ShmEnds& ends : ends_) {
      ends.peers[0] = ends_.front().peers[0];  // one sender, so one shelf
      ends.Connect(shape, kCopyPool);
    }
  }
  Shelf* shelf() { return ends_.front().bells[0].shelf(); }
  ShmEnds& operator[](size_t i) { return ends_[i]; }
  size_t size() const { return ends_.size(); }

 private:
  std::vector<ShmEnds> ends_;
};

TEST(Shelf, ManyMessagesToManyReceiversInAnyOrderOfProgress) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Shape shape = seed % 2 == 0 ? SmallShape() : Shape();
    Receivers receivers(2 + seed % 3, shape);
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    const size_t all_pieces = receivers.shelf()->free_pieces();
    constexpr size_t kMessages = 40;
    std::vector<std::vector<char>> sent;
    std::vector<std::shared_ptr<SharedMessage>> shared;
    std::vector<std::vector<std::vector<char>>> got(receivers.size());
    for (size_t i = 0; i < kMessages; ++i) {
      // Some larger than the shelf.
      sent.push_back(Noise(random() % (i % 10 == 0 ? 6000000 : 300000), &random));
      shared.push_back(random() % 4 == 0 ? nullptr
                                         : std::make_shared<SharedMessage>(
                                               receivers.shelf(), sent.back().size(), shape.chunk_bytes,
                                               static_cast<uint32_t>(receivers.size())));
      for (auto& buffers : got) buffers.emplace_back(sent.back().size());
    }
    for (size_t r = 0; r < receivers.size(); ++r) {
      for (size_t i = 0; i < kMessages; ++i)
        receivers[r].sender->Post(sent[i].data(), sent[i].size(), shared[i]);
    }
    shared.clear();
    std::vector<size_t> posted(receivers.size());
    size_t least_free = all_pieces;
    const auto done = [&] {
      for (size_t r = 0; r < receivers.size(); ++r) {
        if (receivers[r].receiver->completed() < kMessages || receivers[r].sender->completed() < kMessages)
          return false;
      }
      return true;
    };
    const Result result = ShmEnds::Drive(
        [&](bool* moved) {
          for (size_t r = 0; r < receivers.size(); ++r) {
            if (posted[r] < kMessages && random() % 2 == 0) {
              receivers[r].receiver->Post(got[r][posted[r]].data(), got[r][posted[r]].size());
              ++posted[r];
              *moved = true;
            }
            if (random() % 2 == 0) C4_RETURN_IF_ERROR(receivers[r].sender->Progress(moved));
            if (random() % 3 == 0) C4_RETURN_IF_ERROR(receivers[r].receiver->Progress(moved));
          }
          least_free = std::min(least_free, receivers.shelf()->free_pieces());
          *moved = true;
          return Ok();
        },
        done);
    ASSERT_TRUE(result.ok()) << result.message();
    for (size_t r = 0; r < receivers.size(); ++r) EXPECT_TRUE(got[r] == sent) << "receiver " << r;
    EXPECT_LT(least_free, all_pieces) << "the shelf was not used";
    bool moved = false;
    for (size_t r = 0; r < receivers.size(); ++r) EXPECT_TRUE(receivers[r].sender->Progress(&moved).ok());
    EXPECT_EQ(receivers.shelf()->free_pieces(), all_pieces);
  }
}

}  // namespace
}  // namespace c4::shm
