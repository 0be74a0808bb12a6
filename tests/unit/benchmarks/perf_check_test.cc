// Shapes of the collectives as in nccl-tests, and the comparison of whole buffers: a plain implementation of
// each collective, by the words of nccl.h, passes; one byte elsewhere does not.
#include "benchmarks/perf_check.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c4::perf {
namespace {

using ::testing::HasSubstr;

constexpr Kind kAll[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter,
                         Kind::kBroadcast, Kind::kReduce,    Kind::kAllToAll,
                         Kind::kGather,    Kind::kScatter,   Kind::kSendRecv};

// The buffers of all ranks, in int32.
class World {
 public:
  World(Kind kind, int ranks, int root, size_t bytes, bool in_place) {
    const std::optional<Reduction> reduction =
        TraitsOf(kind).reduces ? std::optional(Reduction::kSum) : std::nullopt;
    for (int rank = 0; rank < ranks; ++rank) {
      const Place place{rank, ranks};
      CheckedCall call;
      call.kind = kind;
      call.place = place;
      call.shape = ShapeOf(kind, bytes, sizeof(int32_t), place);
      call.root = root;
      call.in_place = in_place;
      call.round = 9;
      data_.push_back(std::make_unique<Data>(ncclInt32, reduction, place));
      call.data = data_.back().get();
      call.send = Memory(SendCapacity(call.shape));
      call.recv = Memory(RecvCapacity(call.shape));
      Prepare(call);
      calls_.push_back(call);
    }
  }

  CheckedCall& call(int rank) { return calls_[static_cast<size_t>(rank)]; }

  int64_t Wrong(int rank) {
    first_.clear();
    return CountWrong(call(rank), &first_);
  }
  const std::string& first() const { return first_; }

  void Run() {
    const int ranks = static_cast<int>(calls_.size());
    std::vector<std::vector<int32_t>> sent;
    for (int rank = 0; rank < ranks; ++rank) {
      const int32_t* const from = Send(rank);
      sent.emplace_back(from, from + call(rank).shape.send_elements);
    }
    for (int rank = 0; rank < ranks; ++rank) Receive(rank, ranks, sent);
  }

 private:
  char* Memory(size_t elements) {
    memory_.emplace_back(elements * sizeof(int32_t) + 2 * kGuardBytes);
    return memory_.back().data() + kGuardBytes;
  }

  int32_t* Send(int rank) {
    CheckedCall& own = call(rank);
    return reinterpret_cast<int32_t*>(own.in_place ? own.recv : own.send) +
           (own.in_place ? own.shape.in_place_send_offset : 0);
  }

  void Receive(int rank, int ranks, const std::vector<std::vector<int32_t>>& sent) {
    const CheckedCall& own = call(rank);
    int32_t* const to =
        reinterpret_cast<int32_t*>(own.recv) + (own.in_place ? own.shape.in_place_recv_offset : 0);
    const size_t count = own.shape.count;
    const auto from = [&](int peer) -> const std::vector<int32_t>& {
      return sent[static_cast<size_t>(peer)];
    };
    const auto block = [&](int peer) { return static_cast<size_t>(peer) * count; };
    const bool is_root = rank == own.root;
    for (size_t i = 0; i < count; ++i) {
      uint32_t sum = 0;  // wraps around, as the library's sums of integers do
      uint32_t sum_of_block = 0;
      for (int peer = 0; peer < ranks; ++peer) {
        const std::vector<int32_t>& theirs = from(peer);
        sum += static_cast<uint32_t>(theirs[i]);
        if (own.kind == Kind::kReduceScatter) sum_of_block += static_cast<uint32_t>(theirs[block(rank) + i]);
        if (own.kind == Kind::kAllGather || (own.kind == Kind::kGather && is_root))
          to[block(peer) + i] = theirs[i];
        if (own.kind == Kind::kAllToAll) to[block(peer) + i] = theirs[block(rank) + i];
      }
      if (own.kind == Kind::kAllReduce || (own.kind == Kind::kReduce && is_root))
        to[i] = static_cast<int32_t>(sum);
      if (own.kind == Kind::kReduceScatter) to[i] = static_cast<int32_t>(sum_of_block);
      if (own.kind == Kind::kBroadcast) to[i] = from(own.root)[i];
      if (own.kind == Kind::kScatter) to[i] = from(own.root)[block(rank) + i];
      if (own.kind == Kind::kSendRecv) to[i] = from((rank + ranks - 1) % ranks)[i];
    }
  }

  std::vector<std::vector<char>> memory_;
  std::vector<std::unique_ptr<Data>> data_;
  std::vector<CheckedCall> calls_;
  std::string first_;
};

TEST(PerfShapes, AsInNcclTests) {
  const Place place{2, 3};
  const Shape all_reduce = ShapeOf(Kind::kAllReduce, 1027, 4, place);
  EXPECT_EQ(all_reduce.count, 256u);
  EXPECT_EQ(all_reduce.bytes, 1024u);
  // Parts of all-gather, reduce-scatter and all-to-all are whole units of 16 bytes.
  const Shape gathered = ShapeOf(Kind::kAllGather, 1024, 4, place);
  EXPECT_EQ(gathered.count, 84u);
  EXPECT_EQ(gathered.bytes, 1008u);
  EXPECT_EQ(gathered.send_elements, 84u);
  EXPECT_EQ(gathered.in_place_send_offset, 168u);
  EXPECT_EQ(ShapeOf(Kind::kAllGather, 64, 1, Place{0, 4}).count, 16u);
  EXPECT_EQ(ShapeOf(Kind::kAllGather, 60, 1, Place{0, 4}).count, 0u);
  const Shape scattered = ShapeOf(Kind::kReduceScatter, 1024, 4, place);
  EXPECT_EQ(scattered.count, 84u);
  EXPECT_EQ(scattered.send_elements, 252u);
  EXPECT_EQ(scattered.in_place_recv_offset, 168u);
  EXPECT_EQ(ShapeOf(Kind::kAllToAll, 1024, 4, place).recv_elements, 252u);
  EXPECT_EQ(ShapeOf(Kind::kGather, 1024, 4, place).count, 85u);
  EXPECT_EQ(ShapeOf(Kind::kScatter, 1024, 4, place).bytes, 1020u);
}

TEST(PerfShapes, BusFactors) {
  EXPECT_DOUBLE_EQ(BusFactor(Kind::kAllReduce, 4), 1.5);
  for (const Kind kind :
       {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kGather, Kind::kScatter})
    EXPECT_DOUBLE_EQ(BusFactor(kind, 4), 0.75);
  for (const Kind kind : {Kind::kBroadcast, Kind::kReduce, Kind::kSendRecv})
    EXPECT_DOUBLE_EQ(BusFactor(kind, 4), 1);
}

TEST(PerfCheck, ARightCollectiveIsRight) {
  for (const Kind kind : kAll) {
    for (const int ranks : {1, 2, 3, 5}) {
      for (int root = 0; root < (TraitsOf(kind).rooted ? ranks : 1); ++root) {
        for (const bool in_place : {false, true}) {
          for (const size_t bytes : {0, 4, 1024, 5000}) {
            World world(kind, ranks, root, bytes, in_place);
            world.Run();
            for (int rank = 0; rank < ranks; ++rank) {
              EXPECT_EQ(world.Wrong(rank), 0)
                  << TraitsOf(kind).function << ", rank " << rank << " of " << ranks << ", root " << root
                  << (in_place ? ", in place: " : ": ") << world.first();
            }
          }
        }
      }
    }
  }
}

TEST(PerfCheck, NothingDoneIsWrong) {
  for (const Kind kind : kAll) {
    for (const bool in_place : {false, true}) {
      World world(kind, 3, 1, 1024, in_place);
      // In place, what the root sends to itself is there already.
      const int rank = kind == Kind::kBroadcast || kind == Kind::kScatter ? 0 : 1;
      EXPECT_GT(world.Wrong(rank), 0) << TraitsOf(kind).function << (in_place ? " in place" : "");
    }
  }
}

// Every byte counts: those to be written, those to be kept, and the guards.
TEST(PerfCheck, OneByteIsSeen) {
  for (const Kind kind : kAll) {
    for (const bool in_place : {false, true}) {
      World world(kind, 3, 1, 256, in_place);
      world.Run();
      for (int rank = 0; rank < 3; ++rank) {
        const CheckedCall call = world.call(rank);
        const auto try_bytes = [&](char* buffer, size_t elements) {
          char* const end = buffer + elements * sizeof(int32_t) + kGuardBytes;
          for (char* at = buffer - kGuardBytes; at < end; at += 37) {
            *at ^= 1;
            ASSERT_EQ(world.Wrong(rank), 1)
                << TraitsOf(kind).function << ", rank " << rank << ", byte " << at - buffer;
            ASSERT_THAT(world.first(), testing::AnyOf(HasSubstr("gave "), HasSubstr("wrote ")));
            *at ^= 1;
          }
        };
        try_bytes(call.recv, RecvCapacity(call.shape));
        if (!in_place) try_bytes(call.send, SendCapacity(call.shape));
        EXPECT_EQ(world.Wrong(rank), 0);
      }
    }
  }
}

}  // namespace
}  // namespace c4::perf
