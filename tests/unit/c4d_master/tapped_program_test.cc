// A program that calls no library of ours, whose queue pairs of verbs the tap watches: no rank is known at
// their other ends, each end knows the other's number, and no signs of life come.
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4d_master/detectors/communication_hang.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/detectors/slow.h"
#include "c4d_master/queue_pair_sums.h"
#include "c4d_master/telemetry_decode.h"
#include "c4d_master/unknown_peer.h"
#include "c4d_master/windows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/c4d_master/fake_job.h"
#include "tests/unit/c4d_master/fake_paths.h"
#include "wire/segment.h"

namespace c4::c4d {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kRanks = 4;
constexpr int kPairs = 4;  // a client's

// A ring over a leaf each and two spines: rank r writes to rank r + 1 over each pair of spines, one for its
// data and one for what acknowledges them. All that comes back is in the hands of the other end's port.
class TappedProgramTest : public ::testing::Test {
 protected:
  TappedProgramTest() : job_(kRanks) {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      for (int i = 0; i < kPairs; ++i) Connect(rank, (rank + 1) % kRanks, i);
    }
    Sum();
  }

  static std::string Address(uint32_t rank, uint32_t port) {
    return "10.0.0." + std::to_string(rank + 1) + ":" + std::to_string(port);
  }
  static int DataSpine(int i) { return i % 2; }
  static int AckSpine(int i) { return i / 2; }

  void Connect(uint32_t from, uint32_t to, int i) {
    // Numbers as devices give them: the same on all hosts.
    const auto offset = static_cast<uint32_t>(i);
    QueuePair client;
    client.peer = kUnknownPeer;
    client.sends = true;
    client.index = 1 + offset;
    client.number = 17 + offset;
    client.peer_number = 117 + offset;
    client.local = Address(from, 50000 + offset);
    client.remote = Address(to, 4791);
    client.posted_bytes = client.completed_bytes = client.moved_bytes = 1 << 20;
    client.last_post_at_ns = client.last_progress_at_ns = job_.now_ns();
    QueuePair server;
    server.peer = kUnknownPeer;
    server.sends = true;
    server.index = 1 + kPairs + offset;
    server.number = client.peer_number;
    server.peer_number = client.number;
    server.local = Address(to, 60000 + offset);
    server.remote = Address(from, 4791);
    // Host 2 r hangs below leaf r.
    const auto host = [](uint32_t rank) { return static_cast<int>(2 * rank); };
    paths_.Add(client.local, client.remote, host(from), host(to), DataSpine(i), 0);
    paths_.Add(server.local, server.remote, host(to), host(from), AckSpine(i), 0);
    paths_.Forget(client.remote, client.local);
    paths_.Forget(server.remote, server.local);
    job_.membership(from).queue_pairs.push_back(client);
    job_.membership(to).queue_pairs.push_back(server);
  }
  void Sum() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ++job_.membership(rank).revision;
      AddUp(&job_.membership(rank));
    }
  }
  // Everybody writes on for so long; of those for whom `is_cut` holds nothing comes back.
  template <typename IsCut>
  std::vector<Finding> After(int64_t ns, IsCut is_cut) {
    const int64_t until_ns = job_.now_ns() + ns;
    while (job_.now_ns() < until_ns) {
      job_.Advance(kSecondNs / 4);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        for (QueuePair& pair : job_.membership(rank).queue_pairs) {
          if (pair.posted_bytes == 0) continue;
          const int i = static_cast<int>(pair.index) - 1;
          if (pair.posted_bytes == pair.completed_bytes) {
            pair.posted_bytes += 1 << 16;
            pair.last_post_at_ns = job_.now_ns();
          }
          if (is_cut(rank, i)) continue;
          pair.completed_bytes = pair.moved_bytes = pair.posted_bytes;
          pair.last_progress_at_ns = job_.now_ns();
        }
      }
    }
    Sum();
    return DetectCommunicationHangs(job_.Snapshot(), &paths_, {});
  }

  // Everybody writes chunks of 16 KiB for so long, one after the other on each queue pair, each of which
  // takes what `chunk_ns` says. What is found at the end.
  template <typename ChunkNs>
  std::vector<Finding> Write(int seconds, ChunkNs chunk_ns) {
    constexpr int64_t kStepNs = kSecondNs / 4;
    for (int64_t i = 0; i < seconds * kSecondNs / kStepNs; ++i) {
      job_.Advance(kStepNs);
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        for (QueuePair& pair : job_.membership(rank).queue_pairs) {
          if (pair.posted_bytes == 0) continue;
          const auto each_ns = static_cast<int64_t>(chunk_ns(rank, static_cast<int>(pair.index) - 1));
          int64_t& spent_ns = spent_ns_[{rank, pair.index}];
          const int64_t chunks = (spent_ns + kStepNs) / each_ns;
          spent_ns = (spent_ns + kStepNs) % each_ns;
          if (chunks == 0) continue;
          const auto bucket = static_cast<size_t>(
              wire::LatencyBucket(static_cast<uint64_t>(each_ns), wire::kLatencyFloorBytes));
          pair.latency[bucket] += static_cast<uint32_t>(chunks);
          pair.completed_messages += static_cast<uint64_t>(chunks);
          pair.completed_bytes += static_cast<uint64_t>(chunks) * wire::kLatencyFloorBytes;
          pair.moved_bytes = pair.completed_bytes;
          pair.posted_bytes = pair.completed_bytes + 2 * wire::kLatencyFloorBytes;
          pair.last_post_at_ns = pair.last_progress_at_ns = job_.now_ns();
        }
      }
      for (const auto& [name, host] : job_.hosts()) windows_.Observe(host);
    }
    Sum();
    return DetectSlow(job_.Snapshot(), windows_, {.paths = &paths_}, job_.now_ns(), {});
  }

  FakeJob job_;
  FakePaths paths_;
  Windows windows_;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> spent_ns_;  // on the chunk under way, by rank and index
};

TEST_F(TappedProgramTest, TheEndsFindEachOtherByAddressAndNumber) {
  const JobSnapshot snapshot = job_.Snapshot();
  size_t clients = 0;
  for (const QueuePairEnds& ends : CollectQueuePairs(snapshot)) {
    const QueuePair& own = *ends.queue_pair;
    const uint32_t rank = ends.from->rank;
    const bool is_client = own.posted_bytes != 0;
    clients += is_client ? 1 : 0;
    ASSERT_NE(ends.receiver, nullptr);
    EXPECT_EQ(RefOf(ends).to_rank, static_cast<int32_t>((rank + (is_client ? 1 : kRanks - 1)) % kRanks));
    ASSERT_NE(ends.answers, nullptr);
    EXPECT_EQ(ends.answers->number, own.peer_number);
    EXPECT_EQ(AddressOf(ends.answers->local), AddressOf(own.remote));
  }
  EXPECT_EQ(clients, size_t{kRanks * kPairs});
}

TEST_F(TappedProgramTest, WhoDoesNotKnowThisEndIsNotItsOther) {
  for (QueuePair& pair : job_.membership(1).queue_pairs) {
    if (pair.number == 117) pair.peer_number = 99;  // given anew, for somebody else
    if (pair.number == 118) pair.remote = Address(2, 4791);
  }
  size_t alone = 0;
  const JobSnapshot snapshot = job_.Snapshot();
  for (const QueuePairEnds& ends : CollectQueuePairs(snapshot)) alone += ends.receiver == nullptr ? 1 : 0;
  EXPECT_EQ(alone, 4U);
}

TEST_F(TappedProgramTest, ACutLinkIsNamedByDataAndByAcknowledgements) {
  const auto over_cut = [](uint32_t rank, int i) {
    // Into leaf 0 or out of it over spine 0.
    return (rank == 0 || rank == kRanks - 1) && (DataSpine(i) == 0 || AckSpine(i) == 0);
  };
  EXPECT_THAT(After(20 * kSecondNs, [](uint32_t, int) { return false; }), IsEmpty());
  const std::vector<Finding> findings = After(4 * kSecondNs, over_cut);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kLink);
  EXPECT_EQ(findings[0].cable, "leaf0-spine0");
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
  EXPECT_THAT(findings[0].connections, SizeIs(6));
}

// A link carries what it can, so that everything that waits in its queues is slow, acknowledgements as well.
void ExpectSlowLink(const std::vector<Finding>& findings, size_t connections) {
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].syndrome, Syndrome::kCommunicationSlow);
  EXPECT_EQ(findings[0].kind, CulpritKind::kLink);
  EXPECT_EQ(findings[0].cable, "leaf1-spine1");
  EXPECT_EQ(findings[0].confirmed_by, "slow");
  EXPECT_THAT(findings[0].connections, SizeIs(connections));
}

// Of a rank's queue pairs: into leaf 1 or out of it over spine 1.
bool OverSlow(uint32_t rank, int spine) {
  return rank <= 1 && spine == 1;
}

// Before what is slow is old enough to be usual: a master looks all the time, and keeps what it suspects out.
constexpr int kSlowForS = 7;

class TappedSlowTest : public TappedProgramTest, public ::testing::WithParamInterface<double> {};

TEST_P(TappedSlowTest, ASlowLinkIsNamedByDataAndByAcknowledgements) {
  const double usual_ns = GetParam();
  EXPECT_THAT(Write(60, [&](uint32_t, int) { return usual_ns; }), IsEmpty());
  const std::vector<Finding> findings = Write(kSlowForS, [&](uint32_t rank, int i) {
    return OverSlow(rank, DataSpine(i)) || OverSlow(rank, AckSpine(i)) ? 6 * usual_ns : usual_ns;
  });
  ExpectSlowLink(findings, 6);
}

TEST_P(TappedSlowTest, ASlowLinkIsNamedByDataAloneWhereAcknowledgementsOvertake) {
  const double usual_ns = GetParam();
  EXPECT_THAT(Write(60, [&](uint32_t, int) { return usual_ns; }), IsEmpty());
  const std::vector<Finding> findings = Write(kSlowForS, [&](uint32_t rank, int i) {
    return OverSlow(rank, DataSpine(i)) ? 6 * usual_ns : usual_ns;
  });
  ExpectSlowLink(findings, 4);
}

TEST_P(TappedSlowTest, ASlowNicIsOne) {
  const double usual_ns = GetParam();
  EXPECT_THAT(Write(60, [&](uint32_t, int) { return usual_ns; }), IsEmpty());
  const std::vector<Finding> findings =
      Write(kSlowForS, [&](uint32_t rank, int) { return rank <= 1 ? 6 * usual_ns : usual_ns; });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "10.0.0.2");
  EXPECT_EQ(findings[0].confirmed_by, "slow");
}

// A queue pair of a device of 100 Gbit/s that has many, and one of Soft-RoCE in an emulated machine that
// writes short messages. Longer ones would take more than the histogram of latencies has buckets for (1 ms a
// KiB).
INSTANTIATE_TEST_SUITE_P(Devices, TappedSlowTest, ::testing::Values(20e3, 3e6));

TEST_F(TappedProgramTest, ASilentNicIsNamed) {
  const std::vector<Finding> findings = After(4 * kSecondNs, [](uint32_t rank, int) { return rank <= 1; });
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].kind, CulpritKind::kNic);
  EXPECT_EQ(findings[0].nic, "10.0.0.2");
  EXPECT_EQ(findings[0].host, "host1");
  EXPECT_EQ(findings[0].confirmed_by, "no-progress");
}

TEST_F(TappedProgramTest, OneWhoseOtherEndNobodySeesIsNotJudged) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    std::erase_if(job_.membership(rank).queue_pairs,
                  [](const QueuePair& pair) { return pair.posted_bytes == 0; });
  }
  EXPECT_THAT(After(10 * kSecondNs, [](uint32_t rank, int) { return rank <= 1; }), IsEmpty());
}

TEST(TappedProgram, WhatIsKnownByNumberIsTakenInAndWhatIsNotKnownAtAllIsAFault) {
  v1::ProcessReport report;
  v1::CommunicatorState* const state = report.add_communicators();
  state->set_communicator_id(9);
  state->set_rank_count(2);
  for (const uint32_t number : {281U, 0U}) {
    v1::QueuePairState* const pair = report.add_queue_pairs();
    pair->set_communicator_id(9);
    pair->set_peer(UINT32_MAX);
    pair->set_queue_pair_number(273);
    pair->set_peer_queue_pair_number(number);
  }
  std::vector<std::string> faults;
  const Process process = DecodeProcess(report, BatchTimes(kSecondNs, 0), &faults);
  ASSERT_THAT(process.communicators, SizeIs(1));
  ASSERT_THAT(process.communicators[0].queue_pairs, SizeIs(1));
  EXPECT_EQ(process.communicators[0].queue_pairs[0].peer, kUnknownPeer);
  EXPECT_EQ(process.communicators[0].queue_pairs[0].peer_number, 281U);
  EXPECT_THAT(faults, SizeIs(1));
}

}  // namespace
}  // namespace c4::c4d
