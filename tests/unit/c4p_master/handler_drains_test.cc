// Links that are held back: drained by somebody, or as they come and go. What is on them moves, what comes is
// kept off, each move has its reason, and a path master that takes over knows of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/c4p_master/cluster.h"

namespace c4::c4p {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int kHosts = 4;  // of a leaf

class C4pDrainsTest : public testing::Test {
 protected:
  void Begin(const HandlerOptions& options = {}, StateStore* store = nullptr) {
    cluster_.emplace(FakeSpec{.leaves = 2, .spines = 4, .hosts_per_leaf = kHosts}, options, std::nullopt,
                     store);
    cluster_->Run(4000);
    for (int host = 0; host < kHosts; ++host) {
      Open(host, "c" + std::to_string(host));
    }
    cluster_->Run(4000);
    UseAll();
  }
  void Open(int host, const std::string& name) {
    cluster_->Ask(host, kHosts + host % kHosts, name);
    cluster_->Run(1500);
    cluster_->Use(name);
  }
  void UseAll() {
    for (const auto& [name, request] : cluster_->requests) cluster_->Use(name);
  }
  v1::DrainPathsReply Drain(const std::string& target, bool dry_run = false, bool force = false) {
    return Say(target, false, dry_run, force);
  }
  v1::DrainPathsReply Undrain(const std::string& target, bool dry_run = false) {
    return Say(target, true, dry_run, false);
  }
  v1::DrainPathsReply Say(const std::string& target, bool undrain, bool dry_run, bool force) {
    v1::DrainPathsRequest request;
    request.set_target(target);
    request.set_undrain(undrain);
    request.set_dry_run(dry_run);
    request.set_force(force);
    request.set_why("new optic");
    const auto reply = cluster_->handler.DrainPaths(request, cluster_->now_ns);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : v1::DrainPathsReply();
  }
  absl::Status Fault(const std::string& target, bool undrain = false) {
    v1::DrainPathsRequest request;
    request.set_target(target);
    request.set_undrain(undrain);
    return cluster_->handler.DrainPaths(request, cluster_->now_ns).status();
  }
  // Queue pairs that were advised to take that spine.
  int Over(int spine) {
    int count = 0;
    for (const auto& [name, request] : cluster_->requests) {
      for (const int taken : cluster_->Spines(name)) count += taken == spine ? 1 : 0;
    }
    return count;
  }
  std::vector<v1::PathEvent> History(v1::PathEventKind kind) {
    std::vector<v1::PathEvent> found;
    const v1::ListPathHistoryReply all = cluster_->handler.ListPathHistory({}, cluster_->now_ns);
    for (const v1::PathEvent& event : all.events()) {
      if (event.kind() == kind) found.push_back(event);
    }
    return found;
  }
  v1::LinkLoad LinkOf(const std::string& name) {
    const v1::GetTopologyReply topology = cluster_->handler.GetTopology(cluster_->now_ns);
    for (const v1::LinkLoad& load : topology.links()) {
      if (load.name() == name) return load;
    }
    ADD_FAILURE() << "no link " << name;
    return {};
  }

  std::optional<Cluster> cluster_;
};

TEST_F(C4pDrainsTest, ADrainMovesWhatIsOnTheLinkAndAnUndrainBringsItBack) {
  Begin();
  const int before = Over(1);
  ASSERT_GT(before, 0);
  ASSERT_TRUE(History(v1::PATH_EVENT_KIND_MOVE).empty());
  const v1::DrainPathsReply reply = Drain("leaf0-spine1");
  EXPECT_EQ(reply.refused(), "");
  EXPECT_THAT(reply.cables(), ElementsAre("leaf0-spine1"));
  EXPECT_EQ(reply.moves_size(), before) << "all of them go up there";
  EXPECT_EQ(reply.to_come(), 0U);
  EXPECT_EQ(Over(1), 0);
  UseAll();
  const std::vector<v1::PathEvent> moves = History(v1::PATH_EVENT_KIND_MOVE);
  ASSERT_EQ(moves.size(), static_cast<size_t>(before));
  EXPECT_THAT(moves[0].why(), HasSubstr("leaf0-spine1: drained: new optic"));
  EXPECT_THAT(moves[0].from_links(), testing::Contains("leaf0>spine1"));
  EXPECT_THAT(moves[0].to_links(), testing::Not(testing::Contains("leaf0>spine1")));
  EXPECT_EQ(History(v1::PATH_EVENT_KIND_DRAINED).size(), 1U);
  EXPECT_FALSE(LinkOf("leaf0>spine1").up());
  EXPECT_EQ(LinkOf("leaf0>spine1").held(), "drained: new optic");
  EXPECT_TRUE(LinkOf("leaf1>spine1").up());
  // What comes keeps off, too, and nothing goes back.
  Open(0, "later");
  for (const int spine : cluster_->Spines("later")) EXPECT_NE(spine, 1);
  cluster_->Run(30'000);
  EXPECT_EQ(Over(1), 0);

  UseAll();
  const v1::DrainPathsReply back = Undrain("leaf0>spine1");
  EXPECT_THAT(back.cables(), ElementsAre("leaf0-spine1"));
  UseAll();
  EXPECT_GE(Over(1), before - 1);
  EXPECT_TRUE(LinkOf("leaf0>spine1").up());
  EXPECT_EQ(LinkOf("leaf0>spine1").held(), "");
  EXPECT_THAT(History(v1::PATH_EVENT_KIND_MOVE).back().why(), HasSubstr("leaf0-spine1 is used again"));
}

TEST_F(C4pDrainsTest, ADryRunSaysWhatWouldMoveAndMovesNothing) {
  Begin();
  const int before = Over(2);
  const int answers = cluster_->answers_seen;
  const v1::DrainPathsReply would = Drain("spine2", true);
  EXPECT_THAT(would.cables(), UnorderedElementsAre("leaf0-spine2", "leaf1-spine2"));
  EXPECT_EQ(would.moves_size(), before);
  EXPECT_EQ(would.to_come(), static_cast<uint32_t>(before));
  cluster_->Run(2000);
  EXPECT_EQ(Over(2), before);
  EXPECT_EQ(cluster_->answers_seen, answers);
  EXPECT_TRUE(LinkOf("leaf0>spine2").up());
  EXPECT_THAT(History(v1::PATH_EVENT_KIND_DRAINED), IsEmpty());
  const v1::DrainPathsReply done = Drain("spine2");
  ASSERT_EQ(done.moves_size(), before);
  for (int i = 0; i < before; ++i) {
    EXPECT_EQ(done.moves(i).connection(), would.moves(i).connection());
    EXPECT_THAT(std::vector<std::string>(done.moves(i).to_links().begin(), done.moves(i).to_links().end()),
                testing::ElementsAreArray(would.moves(i).to_links()));
  }
  EXPECT_EQ(Over(2), 0);
  UseAll();
  EXPECT_GT(Undrain("spine2", true).moves_size(), 0);
  EXPECT_EQ(Over(2), 0);
}

TEST_F(C4pDrainsTest, ALeafIsNotLeftWithoutALinkUnlessForced) {
  Begin();
  for (const char* const spine : {"spine0", "spine1", "spine2"}) {
    EXPECT_EQ(Drain(spine).refused(), "");
    UseAll();
  }
  for (const bool dry_run : {true, false}) {
    for (const char* const last : {"spine3", "leaf0-spine3", "leaf1"}) {
      const v1::DrainPathsReply refused = Drain(last, dry_run);
      EXPECT_THAT(refused.refused(), HasSubstr("would have no link left")) << last;
      EXPECT_EQ(refused.cables_size(), 0);
      EXPECT_EQ(refused.moves_size(), 0);
    }
  }
  EXPECT_EQ(Over(3), 4 * kHosts);
  EXPECT_TRUE(LinkOf("leaf0>spine3").up());
  const v1::DrainPathsReply forced = Drain("spine3", false, true);
  EXPECT_EQ(forced.refused(), "");
  EXPECT_EQ(forced.stranded_size(), kHosts) << "they stay where they are";
  EXPECT_EQ(Over(3), 4 * kHosts);
  EXPECT_EQ(Undrain("spine3").refused(), "");
  EXPECT_EQ(Over(3), 4 * kHosts);
}

TEST_F(C4pDrainsTest, WhatHasTimeMovesSoManyASecond) {
  HandlerOptions options;
  options.moves_per_second = 1;
  Begin(options);
  const int before = Over(1);
  ASSERT_GE(before, 3);
  const v1::DrainPathsReply reply = Drain("leaf0-spine1");
  EXPECT_EQ(reply.moves_size(), before) << "as planned";
  EXPECT_EQ(reply.to_come(), static_cast<uint32_t>(before) - 1);
  EXPECT_EQ(Over(1), before - 1);
  UseAll();
  cluster_->Run(1100);
  EXPECT_EQ(Over(1), before - 2);
  UseAll();
  cluster_->Run(1000 * before);
  UseAll();
  EXPECT_EQ(Over(1), 0);
  // Who loses its path does not wait.
  ASSERT_EQ(Undrain("leaf0-spine1").refused(), "");
  cluster_->Run(10'000);
  UseAll();
  cluster_->fabric.Cut(0, 2);
  for (const auto& [name, request] : cluster_->requests) {
    std::map<uint32_t, uint32_t> fences;
    const std::vector<int> spines = cluster_->Spines(name);
    for (uint32_t i = 0; i < spines.size(); ++i) {
      if (spines[i] == 2) fences[i] = 1;
    }
    cluster_->Use(name, fences);
  }
  const int lost = Over(2);
  ASSERT_GE(lost, 2);
  int left = lost;
  int most_at_once = 0;
  for (int i = 0; i < 300 && left > 0; ++i) {
    cluster_->Run(20);
    most_at_once = std::max(most_at_once, left - Over(2));
    left = Over(2);
  }
  EXPECT_EQ(left, 0);
  EXPECT_EQ(most_at_once, lost);
}

TEST_F(C4pDrainsTest, WhatIsNoTargetIsRefusedWithAWayOn) {
  Begin();
  EXPECT_EQ(Fault("").code(), absl::StatusCode::kInvalidArgument);
  for (const char* const none : {"spine9", "leaf0-spine9", "leaf0", "spine1 ", "host0>leaf0", "\xff", "-"}) {
    if (std::string(none) == "leaf0") continue;  // one that is
    const absl::Status fault = Fault(none);
    EXPECT_EQ(fault.code(), absl::StatusCode::kNotFound) << none;
    EXPECT_THAT(std::string(fault.message()), HasSubstr("`c4 topology` lists them"));
  }
  EXPECT_THAT(Undrain("spine1").refused(), HasSubstr("spine1 is not drained"));
  EXPECT_EQ(Drain("spine1").refused(), "");
  EXPECT_THAT(Drain("spine1").refused(), HasSubstr("drained already"));
  EXPECT_THAT(Undrain("leaf0-spine1").refused(), HasSubstr("undrain spine1"));
}

TEST_F(C4pDrainsTest, ALinkThatComesAndGoesIsHeldBackUntilItIsQuiet) {
  HandlerOptions options;
  options.flaps.half_life_ns = 30'000 * kMs;
  Begin(options);
  for (int failure = 0; failure < 3; ++failure) {
    cluster_->fabric.Cut(0, 1);
    for (const auto& [name, request] : cluster_->requests) {
      std::map<uint32_t, uint32_t> fences;
      const std::vector<int> spines = cluster_->Spines(name);
      for (uint32_t i = 0; i < spines.size(); ++i) {
        if (spines[i] == 1) fences[i] = static_cast<uint32_t>(failure + 1);
      }
      cluster_->Use(name, fences);
    }
    for (int i = 0; i < 100 && LinkOf("leaf0>spine1").up(); ++i) cluster_->Run(100);
    ASSERT_FALSE(LinkOf("leaf0>spine1").up()) << failure;
    UseAll();
    cluster_->fabric.Heal(0, 1);
    for (int i = 0; i < 30 && !LinkOf("leaf0>spine1").up(); ++i) cluster_->Run(100);
    UseAll();
    EXPECT_EQ(LinkOf("leaf0>spine1").up(), failure < 2) << failure;
  }
  EXPECT_THAT(LinkOf("leaf0>spine1").held(), HasSubstr("comes and goes"));
  EXPECT_GT(LinkOf("leaf0>spine1").flaps(), 1);
  EXPECT_EQ(History(v1::PATH_EVENT_KIND_LINK_DOWN).size(), 3U);
  EXPECT_EQ(History(v1::PATH_EVENT_KIND_HELD).size(), 1U);
  cluster_->Run(20'000);
  EXPECT_EQ(History(v1::PATH_EVENT_KIND_LINK_BACK).size(), 3U) << "it carries something";
  EXPECT_EQ(Over(1), 0);
  cluster_->Run(100'000);
  UseAll();
  EXPECT_TRUE(LinkOf("leaf0>spine1").up());
  EXPECT_GT(Over(1), 0);
  EXPECT_THAT(History(v1::PATH_EVENT_KIND_UNDRAINED).back().why(), HasSubstr("quiet"));
}

// In memory; what is written is written at once.
class Store final : public StateStore {
 public:
  absl::StatusOr<StateRecords> Load() override { return records; }
  void Write(std::vector<StateChange> changes, Done done) override {
    for (StateChange& change : changes) {
      if (change.value) {
        records[change.key] = *std::move(change.value);
      } else {
        records.erase(change.key);
      }
    }
    done(absl::OkStatus());
  }
  StateRecords records;
};

TEST_F(C4pDrainsTest, TheNextMasterKnowsWhatIsDrained) {
  Store store;
  Begin({}, &store);
  ASSERT_EQ(Drain("spine1").refused(), "");
  ASSERT_EQ(Drain("leaf0-spine2").refused(), "");
  ASSERT_EQ(Undrain("leaf0-spine2").refused(), "");
  UseAll();
  cluster_->Run(3000);
  service::Metrics metrics;
  HandlerOptions options;
  options.master_epoch = 2;
  C4pHandler next(options, std::nullopt, &metrics, &store);
  ASSERT_TRUE(next.Restore(store.records, cluster_->now_ns).ok());
  std::map<std::string, std::string> held;
  const v1::GetTopologyReply topology = next.GetTopology(cluster_->now_ns);
  for (const v1::LinkLoad& load : topology.links()) {
    if (!load.held().empty()) held[load.name()] = load.held();
  }
  EXPECT_EQ(held.size(), 4U) << "both directions of two cables";
  EXPECT_EQ(held["leaf0>spine1"], "drained with spine1: new optic");
  v1::DrainPathsRequest request;
  request.set_target("spine1");
  request.set_undrain(true);
  const auto undrained = next.DrainPaths(request, cluster_->now_ns);
  ASSERT_TRUE(undrained.ok());
  EXPECT_EQ(undrained->cables_size(), 2);
}

}  // namespace
}  // namespace c4::c4p
