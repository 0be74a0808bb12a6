// From the cells of a look to the link that slow ones share: what speaks for a link, and what does not.
#include "c4d_master/detectors/slow_links.h"

#include <deque>
#include <string>

#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_paths.h"

namespace c4::c4d {
namespace {

using Sort = LinkBlame::Sort;

// Eight hosts below four leaves, two spines; each host sends to each of another leaf over both, those of leaf
// 0 slowly over spine 1. `chunks`: of each of theirs; `few_well`: chunks of some that are well there all the
// same, each of so many bytes; the others' have 64 KiB.
LinkBlame BlameOf(double chunks, double few_well, uint64_t few_well_bytes = 65536) {
  FakePaths paths;
  std::deque<QueuePairEnds> ends;
  std::deque<std::string> names;
  std::deque<QueuePair> queue_pairs;
  Look look;
  const auto add = [&](int from, int to, int spine, bool slow, double of_chunks, uint64_t bytes = 65536) {
    const std::string& local =
        names.emplace_back("10.0.0." + std::to_string(from) + ":" + std::to_string(20000 + names.size()));
    const std::string& remote = names.emplace_back("10.0.0." + std::to_string(to) + ":9000");
    paths.Add(local, remote, from, to, spine, spine);
    Cell cell;
    QueuePair& queue_pair = queue_pairs.emplace_back();
    queue_pair.completed_messages = 1000;
    queue_pair.completed_bytes = 1000 * bytes;
    cell.ends = &ends.emplace_back();
    ends.back().queue_pair = &queue_pair;
    cell.local = local;
    cell.remote = remote;
    cell.low.chunks = of_chunks;
    cell.judged = true;
    cell.slow = slow;
    look.cells.push_back(cell);
  };
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      if (from / 2 == to / 2) continue;
      add(from, to, 0, false, 20);
      add(from, to, 1, from < 2, from < 2 ? chunks : 20);
      if (from < 2) add(from, to, 1, false, few_well, few_well_bytes);
    }
  }
  for (const Cell& cell : look.cells) {
    if (cell.slow) look.slow.push_back(&cell);
  }
  return BlameLook(look, [](const Cell&) { return false; }, {}, &paths, {}).blame;
}

Sort Blame(double chunks, double few_well, uint64_t few_well_bytes = 65536) {
  return BlameOf(chunks, few_well, few_well_bytes).sort;
}

// A switch's buffer takes them at once, however slow the link is behind it.
TEST(SlowLinks, AChunkOrTwoDoNotSpeakForALink) {
  EXPECT_EQ(Blame(10, 2), Sort::kLinks);
  EXPECT_EQ(Blame(10, 4), Sort::kLinks);
  EXPECT_EQ(Blame(3, 1), Sort::kLinks);
}

// Such as those of a barrier.
TEST(SlowLinks, SmallChunksDoNotEither) {
  EXPECT_EQ(Blame(4, 4, 64), Sort::kLinks);
  EXPECT_EQ(Blame(4, 20, 512), Sort::kLinks);
  EXPECT_EQ(Blame(4, 20, 16384), Sort::kNone);
}

TEST(SlowLinks, AsManyChunksDo) {
  EXPECT_EQ(Blame(10, 10), Sort::kNone);
  EXPECT_EQ(Blame(10, 5), Sort::kNone);
  EXPECT_EQ(Blame(2, 2), Sort::kNone);
  EXPECT_TRUE(BlameOf(10, 10).contradicted()) << "their paths are known, and it is no link's doing";
  EXPECT_FALSE(BlameOf(10, 2).contradicted());
}

}  // namespace
}  // namespace c4::c4d
