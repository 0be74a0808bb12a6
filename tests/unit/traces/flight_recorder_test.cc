#include "traces/flight_recorder.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "analysis/dump_waits.h"

namespace c4::traces {
namespace {

using analysis::FindStalledRanks;
using analysis::RankDump;
using analysis::StalledRanks;

std::vector<RankDump> DumpsOf(const std::string& folder, int ranks, const std::string& before,
                              const std::string& behind) {
  const char* source = std::getenv("C4_SOURCE_DIR");  // NOLINT(concurrency-mt-unsafe)
  std::vector<RankDump> dumps;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = before + std::to_string(rank) + behind;
    std::ifstream file(std::string(source != nullptr ? source : ".") + "/tests/data/" + folder + "/" + name,
                       std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    absl::StatusOr<RankDump> dump = ParseFlightDump(text.str(), name);
    EXPECT_TRUE(dump.ok()) << dump.status();
    if (dump.ok()) dumps.push_back(*std::move(dump));
  }
  return dumps;
}

std::vector<RankDump> Published() {
  return DumpsOf("flight-recorder", 16, "rank_", ".json");
}

std::vector<int> Ranks(const StalledRanks& found) {
  std::vector<int> ranks;
  for (const analysis::StalledRank& stalled : found.stalled) ranks.push_back(stalled.rank);
  return ranks;
}

TEST(FlightRecorder, NamesExactlyTheInjectedRanks) {
  const StalledRanks found = FindStalledRanks(Published());
  EXPECT_EQ(Ranks(found), (std::vector<int>{9, 14}));
  EXPECT_TRUE(found.cycles.empty());
  for (const analysis::StalledRank& stalled : found.stalled) {
    EXPECT_EQ(stalled.waiters, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 15}))
        << "the other stage waits by its transfers";
    EXPECT_LT(stalled.last_entered, stalled.operation);
  }
}

TEST(FlightRecorder, StalledRanksWithoutEntriesOrDumpAreFoundToo) {
  std::vector<RankDump> dumps = Published();
  for (RankDump& dump : dumps) {
    if (dump.rank != 9) continue;
    for (auto& [name, group] : dump.groups) group.last_entered = group.last_completed = -1;
    dump.open_transfers.clear();
  }
  EXPECT_EQ(Ranks(FindStalledRanks(dumps)), (std::vector<int>{9, 14}));
  std::erase_if(dumps, [](const RankDump& dump) { return dump.rank == 9 || dump.rank == 14; });
  const StalledRanks found = FindStalledRanks(dumps);
  EXPECT_TRUE(found.stalled.empty());
  EXPECT_EQ(found.missing, (std::vector<int>{9, 14}));
  ASSERT_EQ(found.without_dump.size(), 2U);
  EXPECT_EQ(found.without_dump[0].rank, 9);
  EXPECT_EQ(found.without_dump[1].rank, 14);
  EXPECT_FALSE(found.without_dump_certain);
}

RankDump Dump(int rank, std::initializer_list<std::tuple<const char*, std::vector<int>, int, int>> groups) {
  RankDump dump;
  dump.rank = rank;
  for (const auto& [name, members, entered, completed] : groups) {
    dump.groups[name] = {name, members, entered, completed, false, {}};
  }
  return dump;
}

TEST(FlightRecorder, FollowsTheChainToWhoWaitsForNobody) {
  // 0 waits for 1 in A, 1 for 2 in B; 2 is in nothing.
  const StalledRanks found =
      FindStalledRanks({Dump(0, {{"A", {0, 1}, 5, 4}}), Dump(1, {{"A", {0, 1}, 4, 4}, {"B", {1, 2}, 8, 7}}),
                        Dump(2, {{"B", {1, 2}, 7, 7}})});
  EXPECT_EQ(Ranks(found), (std::vector<int>{2}));
  EXPECT_EQ(found.stalled.front().waiters, (std::vector<int>{0, 1}));
}

TEST(FlightRecorder, RingOfWaitersIsADeadlock) {
  const StalledRanks found = FindStalledRanks({Dump(0, {{"A", {0, 1}, 5, 4}, {"B", {0, 1}, 6, 6}}),
                                               Dump(1, {{"A", {0, 1}, 4, 4}, {"B", {0, 1}, 7, 6}})});
  EXPECT_TRUE(found.stalled.empty());
  EXPECT_EQ(found.cycles, (std::vector<std::vector<int>>{{0, 1}}));
}

// A damaged dump; found by the fuzzer. The members are those whose dumps know the group.
TEST(FlightRecorder, AGroupWhoseMembersAreNotKnownBlamesNobody) {
  const StalledRanks found = FindStalledRanks(
      {Dump(0, {{"A", {0, 1}, 5, 4}, {"B", {}, 3, 2}}), Dump(1, {{"A", {0, 1}, 4, 4}, {"B", {}, 3, 2}})});
  EXPECT_TRUE(Ranks(found).empty());
  EXPECT_EQ(found.cycles, (std::vector<std::vector<int>>{{0, 1}}));
}

TEST(FlightRecorder, TheFirstOperationOfAGroupIsNumberOne) {
  const StalledRanks found =
      FindStalledRanks({Dump(0, {{"A", {0, 1}, 1, -1}}), Dump(1, {{"A", {0, 1}, 2, -1}})});
  ASSERT_EQ(found.stuck.size(), 1U);
  EXPECT_EQ(found.stuck[0].operation, 1);
}

TEST(FlightRecorder, OperationThatAllHaveEnteredBlamesNobody) {
  const StalledRanks found =
      FindStalledRanks({Dump(0, {{"A", {0, 1}, 5, 4}}), Dump(1, {{"A", {0, 1}, 5, 4}})});
  EXPECT_TRUE(found.stalled.empty());
  ASSERT_EQ(found.stuck.size(), 1U);
  EXPECT_EQ(found.stuck[0].group, "A");
  EXPECT_EQ(found.stuck[0].unfinished, (std::vector<int>{0, 1}));
}

TEST(FlightRecorder, DefaultGroupCountsWhereNoOtherTells) {
  std::vector<RankDump> dumps;
  for (int rank = 0; rank < 4; ++rank) {
    dumps.push_back(Dump(rank, {{"default_pg", {0, 1, 2, 3}, rank == 2 ? 6 : 7, 6}}));
  }
  EXPECT_EQ(Ranks(FindStalledRanks(dumps)), (std::vector<int>{2}));
}

TEST(FlightRecorder, RankThatDisagreesIsNamed) {
  std::vector<RankDump> dumps;
  for (int rank = 0; rank < 4; ++rank) {
    dumps.push_back(Dump(rank, {{"A", {0, 1, 2, 3}, 7, 6}}));
    dumps.back().groups.at("A").operations[7] = {rank == 3 ? "all_gather Float" : "all_reduce Float", 0};
  }
  StalledRanks found = FindStalledRanks(dumps);
  ASSERT_EQ(found.mismatched.size(), 1U);
  EXPECT_EQ(found.mismatched[0].culprits, (std::vector<int>{3}));
  EXPECT_TRUE(found.stuck.empty());
  dumps[2].groups.at("A").operations[7].shape = "all_gather Float";
  found = FindStalledRanks(dumps);
  ASSERT_EQ(found.mismatched.size(), 1U);
  EXPECT_TRUE(found.mismatched[0].culprits.empty()) << "two against two";
}

// Over gloo: no members of groups, no states, and last operations that count transfers too.
TEST(FlightRecorder, NamesTheCulpritsInWhatPyTorchItselfWrites) {
  StalledRanks found = FindStalledRanks(DumpsOf("flight-recorder-pytorch/absent", 4, "nccl_trace_rank_", ""));
  EXPECT_EQ(Ranks(found), (std::vector<int>{2}));
  EXPECT_EQ(found.stalled.front().waiters, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(found.stalled.front().operation, 12);
  EXPECT_TRUE(found.stuck.empty());
  found = FindStalledRanks(DumpsOf("flight-recorder-pytorch/mismatched", 4, "rank_", ".json"));
  ASSERT_EQ(found.mismatched.size(), 1U);
  EXPECT_EQ(found.mismatched.front().culprits, (std::vector<int>{1}));
  EXPECT_EQ(found.mismatched.front().sides.front().shape, "barrier");
}

// Where transfers are in some rank's numbers of a group, they are in all ranks'.
TEST(FlightRecorder, NumbersOfAGroupCountTheSameOnAllRanks) {
  std::vector<RankDump> dumps = {Dump(0, {{"A", {0, 1}, 16, 15}}), Dump(1, {{"A", {0, 1}, 40, 40}})};
  dumps[0].groups.at("A").seen_entered = 12;
  dumps[0].groups.at("A").seen_completed = 11;
  dumps[1].groups.at("A").seen_entered = 11;
  dumps[1].groups.at("A").seen_completed = 11;
  const StalledRanks found = FindStalledRanks(dumps);
  ASSERT_EQ(Ranks(found), (std::vector<int>{1}));
  EXPECT_EQ(found.stalled.front().last_entered, 11);
}

TEST(FlightRecorder, PartsOfACompletedBatchAreNotOpen) {
  const absl::StatusOr<RankDump> dump = ParseFlightDump(
      R"({"pg_config":{"7":{"desc":"fsdp","ranks":"[0, 1]"}},"entries":[
          {"process_group":["7","fsdp"],"collective_seq_id":4,"profiling_name":"nccl:_all_gather_base",
           "state":"scheduled","is_p2p":false},
          {"process_group":["7","fsdp"],"collective_seq_id":4,"profiling_name":"nccl:ALLGATHER_coalesced",
           "state":"completed","is_p2p":false}]})",
      "rank_0");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->groups.at("7").last_entered, 4);
  EXPECT_EQ(dump->groups.at("7").last_completed, 4);
}

TEST(FlightRecorder, RefusesWhatIsNoDump) {
  for (const char* text : {"", "{", "[]", "{}", "{\"entries\":3}", "{\"entries\":[]}", "\x80\x04"}) {
    const absl::StatusOr<RankDump> dump = ParseFlightDump(text, "rank_3.json");
    EXPECT_FALSE(dump.ok()) << text;
  }
  EXPECT_FALSE(ParseFlightDump("{\"entries\":[],\"pg_config\":{\"0\":{}}}", "dump.json").ok());
}

TEST(FlightRecorder, TakesProgressFromEntriesWhereThereIsNoTable) {
  const absl::StatusOr<RankDump> dump = ParseFlightDump(
      R"({"pg_config":{"7":{"desc":"tp","ranks":"[0, 1]"}},"entries":[
          {"pg_id":1,"process_group":["7","tp"],"collective_seq_id":4,"state":"completed","is_p2p":false},
          {"pg_id":1,"process_group":["7","tp"],"collective_seq_id":5,"state":"scheduled","is_p2p":false}]})",
      "nccl_trace_rank_1.json");
  ASSERT_TRUE(dump.ok()) << dump.status();
  EXPECT_EQ(dump->rank, 1);
  EXPECT_EQ(dump->groups.at("7").last_entered, 5);
  EXPECT_EQ(dump->groups.at("7").last_completed, 4);
}

}  // namespace
}  // namespace c4::traces
