// Moves for C4D's experiments: exactly what is asked for, on the books as in the network; refused with a
// reason; moved back when they are over or nobody ends them.
#include <gmock/gmock.h>

#include "tests/unit/c4p_master/cluster.h"

namespace c4::c4p {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr int64_t kSecondNs = 1000 * kMs;

class MovesTest : public testing::Test {
 protected:
  explicit MovesTest(HandlerOptions options = {},
                     FakeSpec spec = {.leaves = 3, .spines = 4, .hosts_per_leaf = 2})
      : cluster_(spec, options) {
    cluster_.Run(3000);
    cluster_.Ask(0, 2, "a");
    cluster_.Ask(2, 4, "b");
    cluster_.Run(3000);
    for (const auto& [name, request] : cluster_.requests) cluster_.Use(name);
    cluster_.Run(200);
  }

  // The tuple that the queue pair uses.
  v1::FiveTuple TupleOf(const std::string& name, int index) {
    const v1::PathRequest& request = cluster_.requests.at(name).second;
    const v1::QueuePairPath& path = cluster_.answers[name].paths(index);
    v1::FiveTuple tuple;
    tuple.set_protocol(v1::IP_PROTOCOL_TCP);
    tuple.set_source(request.ends(static_cast<int>(path.plane())).source());
    tuple.set_source_port(path.source_port());
    tuple.set_destination(request.ends(static_cast<int>(path.plane())).destination());
    tuple.set_destination_port(request.destination_port());
    return tuple;
  }
  static std::string Cable(int leaf, int spine) {
    return "leaf" + std::to_string(leaf) + "-spine" + std::to_string(spine);
  }
  v1::MovePathsRequest Step(const std::string& experiment, const std::string& name, int index,
                            const std::vector<std::string>& avoid = {}) {
    v1::MovePathsRequest request;
    request.set_job("job");
    request.set_experiment(experiment);
    request.set_why("to tell a link from a NIC");
    request.set_hold_ns(60 * kSecondNs);
    v1::PathMove* const move = request.add_moves();
    *move->mutable_tuple() = TupleOf(name, index);
    for (const std::string& cable : avoid) move->add_avoid(cable);
    return request;
  }
  v1::MovePathsReply Move(const v1::MovePathsRequest& request) {
    const absl::StatusOr<v1::MovePathsReply> reply = cluster_.handler.MovePaths(request, cluster_.now_ns);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(v1::MovePathsReply());
  }
  v1::EndMovesReply End(const std::string& experiment, const std::vector<uint64_t>& keep = {},
                        const std::string& job = "job") {
    v1::EndMovesRequest request;
    request.set_job(job);
    request.set_experiment(experiment);
    for (const uint64_t number : keep) request.add_keep(number);
    const absl::StatusOr<v1::EndMovesReply> reply = cluster_.handler.EndMoves(request, cluster_.now_ns);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(v1::EndMovesReply());
  }
  // Promised to each link.
  std::map<std::string, double> Loads() {
    std::map<std::string, double> loads;
    const v1::ListPathsReply paths = cluster_.handler.ListPaths({}, cluster_.now_ns);
    for (const v1::LinkLoad& link : paths.links()) loads[link.name()] = link.load_mbps();
    return loads;
  }
  std::vector<std::string> History() {
    std::vector<std::string> texts;
    const v1::ListPathsReply paths = cluster_.handler.ListPaths({}, cluster_.now_ns);
    for (const v1::MoveEntry& entry : paths.moves()) texts.push_back(entry.text());
    return texts;
  }

  Cluster cluster_;
};

TEST_F(MovesTest, OneMovesAndGoesBack) {
  const std::vector<int> before = cluster_.Spines("a");
  const std::map<std::string, double> loads = Loads();
  const int spine = before[1];
  const v1::MovePathsReply moved = Move(Step("v-1/1.1", "a", 1, {Cable(0, spine)}));
  ASSERT_EQ(moved.refused(), "");
  ASSERT_THAT(moved.moves(), SizeIs(1));
  EXPECT_TRUE(moved.moves(0).moved());
  std::vector<int> there = cluster_.Spines("a");
  EXPECT_NE(there[1], spine) << "the library is told";
  EXPECT_EQ(moved.moves(0).tuple().source_port(), cluster_.answers["a"].paths(1).source_port());
  there[1] = spine;
  EXPECT_EQ(there, before) << "and of nothing else";
  // The books say the same.
  EXPECT_NE(Loads(), loads);
  EXPECT_GT(loads.at("leaf0>spine" + std::to_string(spine)),
            Loads().at("leaf0>spine" + std::to_string(spine)));
  cluster_.Use("a");
  cluster_.Run(2000);
  EXPECT_NE(cluster_.Spines("a")[1], spine) << "nobody takes it back of his own";
  const v1::ListPathsReply paths = cluster_.handler.ListPaths({}, cluster_.now_ns);
  EXPECT_THAT(paths.connections(0).queue_pairs(1).moved(), HasSubstr("v-1/1.1"));
  EXPECT_EQ(paths.connections(0).queue_pairs(0).moved(), "");

  const v1::EndMovesReply back = End("v-1/1.1");
  ASSERT_THAT(back.moves(), SizeIs(1));
  EXPECT_TRUE(back.moves(0).moved());
  EXPECT_EQ(back.moves(0).number(), moved.moves(0).number());
  EXPECT_EQ(cluster_.Spines("a"), before);
  cluster_.Use("a");
  cluster_.Run(200);
  EXPECT_EQ(Loads(), loads);
  EXPECT_THAT(End("v-1/1.1").moves(), IsEmpty()) << "it is over";
  EXPECT_THAT(History(), SizeIs(2));
}

TEST_F(MovesTest, WhatIsKeptStays) {
  const int spine = cluster_.Spines("a")[2];
  const v1::MovePathsReply moved = Move(Step("v-1/1.1", "a", 2, {Cable(0, spine)}));
  cluster_.Use("a");
  const int now = cluster_.Spines("a")[2];
  EXPECT_THAT(End("v-1/1.1", {moved.moves(0).number()}).moves(), IsEmpty());
  cluster_.Run(120'000);
  EXPECT_EQ(cluster_.Spines("a")[2], now) << "also when its time would have been up";
  EXPECT_THAT(History(), Contains(HasSubstr("stays on its new way")));
}

TEST_F(MovesTest, ThroughAndAvoidAreKept) {
  for (int spine = 0; spine < 4; ++spine) {
    const std::vector<int> before = cluster_.Spines("b");
    if (before[0] == spine) continue;
    v1::MovePathsRequest step = Step("v-1/" + std::to_string(spine) + ".1", "b", 0);
    step.mutable_moves(0)->set_through("leaf1>spine" + std::to_string(spine));
    const v1::MovePathsReply moved = Move(step);
    ASSERT_EQ(moved.refused(), "");
    EXPECT_EQ(cluster_.Spines("b")[0], spine);
    EXPECT_THAT(moved.moves(0).links(), Contains("leaf1>spine" + std::to_string(spine)));
    cluster_.Use("b");
    (void)End("v-1/" + std::to_string(spine));
    EXPECT_EQ(cluster_.Spines("b")[0], before[0]) << "by the experiment's name, all of its steps";
    cluster_.Use("b");
  }
}

TEST_F(MovesTest, AllOrNothingButForWhatIsOptional) {
  const std::vector<int> before = cluster_.Spines("a");
  const std::map<std::string, double> loads = Loads();
  v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
  *step.add_moves() = Step("", "b", 0).moves(0);
  for (int spine = 0; spine < 4; ++spine) step.mutable_moves(1)->add_avoid(Cable(1, spine));
  EXPECT_THAT(Move(step).refused(), HasSubstr("no other path"));
  EXPECT_EQ(cluster_.Spines("a"), before);
  EXPECT_EQ(Loads(), loads);
  step.mutable_moves(1)->set_optional(true);
  const v1::MovePathsReply moved = Move(step);
  EXPECT_EQ(moved.refused(), "");
  ASSERT_THAT(moved.moves(), SizeIs(2));
  EXPECT_TRUE(moved.moves(0).moved());
  EXPECT_FALSE(moved.moves(1).moved());
  EXPECT_NE(moved.moves(1).why(), "");
}

TEST_F(MovesTest, OfAnotherJobNothingMoves) {
  v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
  step.set_job("another");
  EXPECT_THAT(Move(step).refused(), HasSubstr("no queue pair of job another"));
  const v1::MovePathsReply moved = Move(Step("v-1/1.1", "a", 0));
  ASSERT_EQ(moved.refused(), "");
  EXPECT_THAT(End("v-1/1.1", {}, "another").moves(), IsEmpty()) << "nor is it moved back";
}

TEST_F(MovesTest, WhatMovedMeanwhileIsNotMoved) {
  v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
  step.mutable_moves(0)->mutable_tuple()->set_source_port(1);
  EXPECT_NE(Move(step).refused(), "");
  // One that is on its way is let go there first.
  ASSERT_EQ(Move(Step("v-1/1.1", "a", 0)).refused(), "");
  v1::MovePathsRequest again = Step("v-1/1.2", "a", 0);
  again.mutable_moves(0)->mutable_tuple()->set_source_port(step.moves(0).tuple().source_port());
  EXPECT_NE(Move(again).refused(), "");
}

TEST_F(MovesTest, OneExperimentAtATime) {
  ASSERT_EQ(Move(Step("v-1/1.1", "a", 0)).refused(), "");
  EXPECT_THAT(Move(Step("v-2/1.1", "b", 0)).refused(), HasSubstr("one at a time"));
  EXPECT_EQ(Move(Step("v-1/1.2", "b", 0)).refused(), "") << "its own next step";
  cluster_.Use("a");
  cluster_.Use("b");
  (void)End("v-1/1");
  EXPECT_EQ(Move(Step("v-2/1.1", "b", 1)).refused(), "");
}

TEST_F(MovesTest, WhatNobodyEndsIsMovedBack) {
  const std::vector<int> before = cluster_.Spines("a");
  ASSERT_EQ(Move(Step("v-1/1.1", "a", 0)).refused(), "");
  cluster_.Use("a");
  cluster_.Run(59'000);
  EXPECT_NE(cluster_.Spines("a"), before);
  cluster_.Run(3000);
  EXPECT_EQ(cluster_.Spines("a"), before);
  EXPECT_THAT(History(), Contains(HasSubstr("nobody ended the experiment")));
}

TEST_F(MovesTest, WhatIsClosedOrWhoseAgentIsAwayEndsQuietly) {
  const v1::MovePathsReply moved = Move(Step("v-1/1.1", "a", 0));
  ASSERT_EQ(moved.refused(), "");
  cluster_.Close("a");
  const v1::EndMovesReply back = End("v-1/1.1");
  ASSERT_THAT(back.moves(), SizeIs(1));
  EXPECT_THAT(back.moves(0).why(), HasSubstr("closed"));
  ASSERT_EQ(Move(Step("v-1/2.1", "b", 0)).refused(), "");
  cluster_.handler.Disconnect(cluster_.agents[2].session, cluster_.now_ns);
  EXPECT_THAT(End("v-1/2").moves(0).why(), HasSubstr("agent is away"));
  EXPECT_THAT(Move(Step("v-1/3.1", "b", 1)).refused(), HasSubstr("agent is away"));
}

TEST_F(MovesTest, WhatIsNoRequestIsSaidToBeNone) {
  const auto fault = [&](const std::function<void(v1::MovePathsRequest*)>& spoil) {
    v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
    spoil(&step);
    return cluster_.handler.MovePaths(step, cluster_.now_ns).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(fault([](auto* step) { step->clear_job(); })));
  EXPECT_TRUE(absl::IsInvalidArgument(fault([](auto* step) { step->clear_experiment(); })));
  EXPECT_TRUE(absl::IsInvalidArgument(fault([](auto* step) { step->clear_moves(); })));
  EXPECT_TRUE(absl::IsInvalidArgument(fault([](auto* step) { step->set_hold_ns(0); })));
  EXPECT_TRUE(absl::IsInvalidArgument(fault([](auto* step) { step->set_hold_ns(INT64_MAX); })));
  EXPECT_TRUE(absl::IsInvalidArgument(cluster_.handler.EndMoves({}, cluster_.now_ns).status()));
  v1::MovePathsRequest many = Step("v-1/1.1", "a", 0);
  for (int i = 0; i < 100; ++i) *many.add_moves() = many.moves(0);
  EXPECT_THAT(Move(many).refused(), HasSubstr("more than one step may move"));
  v1::MovePathsRequest nowhere = Step("v-1/1.1", "a", 0);
  nowhere.mutable_moves(0)->mutable_tuple()->set_source("no address");
  EXPECT_NE(Move(nowhere).refused(), "");
  v1::MovePathsRequest markup = Step(std::string(5000, '<') + "\xff", "a", 0);
  EXPECT_EQ(Move(markup).refused(), "");
  EXPECT_THAT(History(), Each(testing::Not(HasSubstr("\xff"))));
}

class ForbiddenMovesTest : public MovesTest {
 protected:
  static HandlerOptions Options() {
    HandlerOptions options;
    options.moves.allowed = false;
    return options;
  }
  ForbiddenMovesTest() : MovesTest(Options()) {}
};

TEST_F(ForbiddenMovesTest, TheOperatorMayForbidThem) {
  const std::vector<int> before = cluster_.Spines("a");
  EXPECT_THAT(Move(Step("v-1/1.1", "a", 0)).refused(), HasSubstr("operator"));
  EXPECT_EQ(cluster_.Spines("a"), before);
  EXPECT_THAT(History(), Contains(HasSubstr("refused")));
}

class FewMovesTest : public MovesTest {
 protected:
  static HandlerOptions Options() {
    HandlerOptions options;
    options.moves.per_hour = 2;
    options.moves.most_fill = 0.1;
    return options;
  }
  FewMovesTest() : MovesTest(Options()) {}
};

TEST_F(FewMovesTest, NoLinkIsOverloadedAndNoJobMovesAllTheTime) {
  EXPECT_THAT(Move(Step("v-1/1.1", "a", 0)).refused(), HasSubstr("overload"));
  EXPECT_THAT(Move(Step("v-1/1.2", "a", 0)).refused(), HasSubstr("overload"));
  EXPECT_THAT(Move(Step("v-1/1.3", "a", 0)).refused(), HasSubstr("within an hour"));
  cluster_.now_ns += 3601 * kSecondNs;
  EXPECT_THAT(Move(Step("v-1/1.4", "a", 0)).refused(), testing::Not(HasSubstr("within an hour")));
}

class PlanesMovesTest : public MovesTest {
 protected:
  PlanesMovesTest()
      : MovesTest({}, {.leaves = 6, .spines = 4, .hosts_per_leaf = 2, .ports = FakePorts::kPlanes}) {}
};

TEST_F(PlanesMovesTest, AnotherNicIsAnotherPlane) {
  const uint32_t plane = cluster_.answers["a"].paths(0).plane();
  v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
  step.mutable_moves(0)->set_other_plane(true);
  ASSERT_EQ(Move(step).refused(), "");
  EXPECT_NE(cluster_.answers["a"].paths(0).plane(), plane);
  cluster_.Use("a");
  (void)End("v-1/1");
  EXPECT_EQ(cluster_.answers["a"].paths(0).plane(), plane);
}

TEST_F(MovesTest, WithoutAnotherPlaneThereIsNoOtherNic) {
  v1::MovePathsRequest step = Step("v-1/1.1", "a", 0);
  step.mutable_moves(0)->set_other_plane(true);
  EXPECT_THAT(Move(step).refused(), HasSubstr("another NIC"));
}

// Whatever is asked in whatever order: when all is ended, every queue pair and every account is as before.
TEST(MovesProperty, TheBooksAreAsBeforeWhenAllIsOver) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster({.leaves = 4, .spines = 4, .hosts_per_leaf = 2, .seed = seed});
    cluster.Run(3000);
    for (int i = 0; i < 6; ++i) cluster.Ask(i, (i + 2) % 8, "c" + std::to_string(i));
    cluster.Run(3000);
    for (const auto& [name, request] : cluster.requests) cluster.Use(name);
    cluster.Run(200);
    const auto uplinks = cluster.Uplinks();
    const v1::ListPathsReply before = cluster.handler.ListPaths({}, cluster.now_ns);
    for (int step = 0; step < 12; ++step) {
      v1::MovePathsRequest request;
      request.set_job("job");
      request.set_experiment("v-1/1." + std::to_string(step));
      request.set_hold_ns(60 * kSecondNs);
      const v1::ListPathsReply now = cluster.handler.ListPaths({}, cluster.now_ns);
      for (int i = 0; i < 3; ++i) {
        const auto& connection =
            now.connections(static_cast<int>(random() % static_cast<uint64_t>(now.connections_size())));
        v1::PathMove* const move = request.add_moves();
        *move->mutable_tuple() = connection.queue_pairs(static_cast<int>(random() % 4)).tuple();
        move->set_optional(random() % 3 != 0);
        if (random() % 2 == 0) move->add_avoid("leaf0-spine" + std::to_string(random() % 4));
      }
      ASSERT_TRUE(cluster.handler.MovePaths(request, cluster.now_ns).ok());
      for (const auto& [name, asked] : cluster.requests) cluster.Use(name);
      cluster.Run(100);
      if (random() % 2 == 0) {
        v1::EndMovesRequest end;
        end.set_job("job");
        end.set_experiment("v-1/1");
        ASSERT_TRUE(cluster.handler.EndMoves(end, cluster.now_ns).ok());
        for (const auto& [name, asked] : cluster.requests) cluster.Use(name);
        cluster.Run(100);
        EXPECT_EQ(cluster.Uplinks(), uplinks) << "seed " << seed << " step " << step;
        const v1::ListPathsReply after = cluster.handler.ListPaths({}, cluster.now_ns);
        for (int i = 0; i < before.links_size(); ++i) {
          EXPECT_EQ(after.links(i).load_mbps(), before.links(i).load_mbps()) << after.links(i).name();
        }
      }
    }
  }
}

}  // namespace
}  // namespace c4::c4p
