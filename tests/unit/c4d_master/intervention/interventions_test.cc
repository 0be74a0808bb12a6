// The master with a simulated job and a C4P that moves its queue pairs: verdicts that the detectors cannot
// settle are settled, bounds are kept, everything is written down, and whatever C4P does or does not do, a
// verdict is never worse than without it.
#include "c4d_master/intervention/interventions.h"

#include "c4d_master/c4d_handler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/verdict_json.h"
#include "tests/support/told_verdicts.h"
#include "tests/support/training_sim.h"

namespace c4::c4d {
namespace {

using simulation::Fault;
using simulation::TrainingShape;
using simulation::TrainingSim;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// C4P on the simulated network: another spine, and back.
class SimulatedMover final : public Mover {
 public:
  SimulatedMover(TrainingSim* sim, uint32_t spines) : sim_(sim), spines_(spines) {}

  void Send(const MoveOrder& order) override {
    orders.push_back(order);
    if (silent) return;
    answer_ = order.kind == MoveOrder::Kind::kEnd ? Back(order) : There(order);
  }
  std::optional<MoveAnswer> Take() override { return std::exchange(answer_, std::nullopt); }

  bool silent = false;
  std::string refuses;
  std::vector<MoveOrder> orders;
  std::map<uint64_t, std::pair<std::string, std::string>> held;  // where it sends from, and to

 private:
  static uint32_t SpineOf(const std::vector<std::string>& links) {
    return links.size() < 3 ? 0
                            : static_cast<uint32_t>(std::stoi(links[1].substr(links[1].find("spine") + 5)));
  }
  MoveAnswer There(const MoveOrder& order) {
    MoveAnswer answer;
    if (!refuses.empty()) {
      answer.kind = MoveAnswer::Kind::kRefused;
      answer.why = refuses;
      return answer;
    }
    answer.kind = MoveAnswer::Kind::kDone;
    for (const WantedMove& wanted : order.moves) {
      const uint32_t now = SpineOf(sim_->LinksOf(wanted.flow.local, wanted.flow.remote));
      MoveAnswer::Moved moved;
      for (uint32_t spine = 0; spine < spines_ && !moved.moved; ++spine) {
        const std::string name = "spine" + std::to_string(spine);
        // The way that it would have.
        bool avoided = false;
        for (const std::string& link : wanted.flow.links) {
          const std::string cable = std::string(LowerEndOf(link)) + "-" + name;
          avoided =
              avoided || std::find(wanted.avoid.begin(), wanted.avoid.end(), cable) != wanted.avoid.end();
        }
        if (spine == now || avoided || (!wanted.through.empty() && !wanted.through.ends_with(name))) continue;
        moved.local = sim_->MoveTo(wanted.flow.local, wanted.flow.remote, spine);
        moved.moved = !moved.local.empty();
        moved.number = ++number_;
        moved.links = sim_->LinksOf(moved.local, wanted.flow.remote);
        held[number_] = {moved.local, wanted.flow.remote};
        spines_before_[number_] = now;
      }
      answer.moves.push_back(moved);
    }
    return answer;
  }
  MoveAnswer Back(const MoveOrder& order) {
    MoveAnswer answer;
    answer.kind = MoveAnswer::Kind::kDone;
    for (const auto& [number, ends] : held) {
      if (std::find(order.keep.begin(), order.keep.end(), number) != order.keep.end()) continue;
      MoveAnswer::Moved back;
      back.number = number;
      back.local = sim_->MoveTo(ends.first, ends.second, spines_before_[number]);
      back.moved = true;
      answer.moves.push_back(back);
    }
    held.clear();
    return answer;
  }

  TrainingSim* const sim_;
  const uint32_t spines_;
  uint64_t number_ = 0;
  std::map<uint64_t, uint32_t> spines_before_;
  std::optional<MoveAnswer> answer_;
};

class SimulatedPaths final : public PathSource {
 public:
  explicit SimulatedPaths(const TrainingSim* sim) : sim_(sim) {}
  std::shared_ptr<const LinkPath> Find(const std::string& source, const std::string& destination) override {
    LinkPath links = sim_->LinksOf(source, destination);
    return links.empty() ? nullptr : std::make_shared<const LinkPath>(std::move(links));
  }

 private:
  const TrainingSim* const sim_;
};

class InterventionsTest : public ::testing::Test {
 protected:
  // A ring of ranks, each below a leaf of its own, with one queue pair a connection: all that a NIC carries
  // one way takes one link.
  static TrainingShape Ring() {
    TrainingShape shape;
    shape.tensor = 1;
    shape.pipeline = 1;
    shape.data = 4;
    shape.queue_pairs = 1;
    shape.hosts_per_leaf = 1;
    shape.spines = 2;
    return shape;
  }
  InterventionsTest() { Fresh(true); }

  // All from the beginning.
  void Fresh(bool intervene) {
    handler_.reset();
    sim_ = std::make_unique<TrainingSim>(Ring(), 11);
    mover_ = std::make_unique<SimulatedMover>(sim_.get(), Ring().spines);
    paths_ = std::make_unique<SimulatedPaths>(sim_.get());
    store_ = std::make_unique<VerdictStore>(":memory:");
    Start(intervene);
  }

  void Start(bool intervene, uint64_t epoch = 1) {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = epoch;
    options.intervene = intervene;
    options.policy = policy_;
    handler_ = std::make_unique<C4dHandler>(options, store_.get(), &metrics_, paths_.get(), mover_.get());
  }
  void Pass(double seconds, const std::function<bool()>& until = nullptr) {
    for (int step = 0; step < static_cast<int>(seconds * 4); ++step) {
      for (const v1::TelemetryBatch& batch : sim_->Step()) {
        (void)handler_->Ingest(batch, {sim_->now_ns(), sim_->unix_ns()});
      }
      handler_->Tick({sim_->now_ns(), sim_->unix_ns()});
      if (until && until()) return;
    }
  }
  // A link that all of rank 1's queue pairs take, if there is one: moves rank 1's onto spine 0.
  void PutOnOneLink() {
    for (const TrainingSim::Path& path : sim_->paths()) {
      if (path.from == 1 || path.to == 1) Onto(path, 0);
    }
  }
  void Onto(const TrainingSim::Path& path, uint32_t spine) {
    for (const auto& [name, host] : hosts()) {
      for (const Process& process : host.processes) {
        for (const Membership& membership : process.communicators) {
          for (const QueuePair& pair : membership.queue_pairs) {
            if (!pair.sends || process.rank != static_cast<int32_t>(path.from) || pair.index != path.index ||
                pair.peer != path.to) {
              continue;
            }
            (void)sim_->MoveTo(pair.local, pair.remote, spine);
          }
        }
      }
    }
  }
  const std::map<std::string, Host>& hosts() const { return handler_->hosts(); }
  std::vector<v1::Verdict> All() const { return AllVerdicts(*handler_); }
  std::string Story() const { return StoryOf(*handler_); }
  std::optional<v1::Intervention> Experiment() const { return NewestExperiment(*handler_); }
  bool IsOver() const { return IsExperimentOver(*handler_); }
  // A slow link that looks like a slow NIC.
  void SlowLink() {
    Pass(5);
    PutOnOneLink();
    Pass(35);
    sim_->Inject(Fault::kSlowLink, 1 * Ring().spines + 0);
  }

  Policy policy_;
  std::unique_ptr<TrainingSim> sim_;
  std::unique_ptr<SimulatedMover> mover_;
  std::unique_ptr<SimulatedPaths> paths_;
  std::unique_ptr<VerdictStore> store_;
  service::Metrics metrics_;
  std::unique_ptr<C4dHandler> handler_;
};

TEST_F(InterventionsTest, ALinkThatTheDetectorsTakeForANicIsNamed) {
  SlowLink();
  Pass(90, [&] { return IsOver(); });
  ASSERT_TRUE(IsOver()) << Story();
  Pass(1);
  EXPECT_EQ(Experiment()->outcome(), "settled") << Story();
  const std::vector<v1::Verdict> verdicts = All();
  ASSERT_THAT(verdicts, SizeIs(1)) << Story();
  const v1::Verdict& verdict = verdicts[0];
  EXPECT_EQ(verdict.culprit().kind(), v1::CULPRIT_KIND_LINK) << Story();
  EXPECT_EQ(verdict.culprit().cable(), "leaf1-spine0");
  EXPECT_EQ(verdict.state(), v1::VERDICT_STATE_CONFIRMED);
  EXPECT_EQ(verdict.confirmed_by(), "moved");
  EXPECT_DOUBLE_EQ(verdict.confidence(), policy_.intervention.confidence);
  EXPECT_EQ(verdict.evidence(0).kind(), "moved");
  EXPECT_THAT(verdict.evidence(0).text(), HasSubstr("from spine0 to spine1"));
  EXPECT_THAT(verdict.evidence(0).text(), HasSubstr("unchanged"));
  EXPECT_THAT(mover_->held, IsEmpty()) << "nothing is held that nobody will end";
  // Every move is written down, in the store too.
  size_t there = 0;
  const v1::Intervention experiment = *Experiment();
  for (const v1::MovedQueuePair& move : experiment.moves()) there += move.back() ? 0 : 1;
  EXPECT_GE(there, 2U) << "a suspect and a control";
  const auto audit = store_->Audit("job");
  ASSERT_TRUE(audit.ok());
  EXPECT_EQ(audit->back().verdict.interventions_size(), 1);
  // Healed, it is over.
  sim_->Heal();
  Pass(90);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty()) << Story();
  EXPECT_THAT(All(), SizeIs(1)) << Story();
}

TEST_F(InterventionsTest, ANicIsANic) {
  Pass(5);
  PutOnOneLink();
  Pass(35);
  sim_->Inject(Fault::kSlowNic, 1);
  Pass(90, [&] { return IsOver(); });
  ASSERT_TRUE(IsOver()) << Story();
  Pass(20);
  const std::vector<v1::Verdict> verdicts = All();
  ASSERT_THAT(verdicts, SizeIs(1)) << Story();
  EXPECT_EQ(verdicts[0].culprit().kind(), v1::CULPRIT_KIND_NIC) << Story();
  EXPECT_EQ(verdicts[0].culprit().nic(), sim_->nic(1)) << Story();
  EXPECT_EQ(verdicts[0].confirmed_by(), "moved") << Story();
  EXPECT_THAT(verdicts[0].evidence(0).text(), HasSubstr("from spine0 to spine1"));
  sim_->Heal();
  Pass(30);
  EXPECT_THAT(handler_->ListVerdicts(false).verdicts(), IsEmpty()) << Story();
}

// A job that has not asked for it is never touched.
TEST_F(InterventionsTest, OffUnlessTheJobAsksForIt) {
  Fresh(false);
  SlowLink();
  Pass(60);
  EXPECT_THAT(mover_->orders, IsEmpty());
  EXPECT_FALSE(Experiment().has_value());
  EXPECT_THAT(All(), Not(IsEmpty()));
}

// What the verdict says without any experiment, but for ids and times.
std::string Gist(const v1::Verdict& verdict) {
  return service::VerdictHead(verdict) + " " + verdict.confirmed_by() + " " +
         std::to_string(verdict.confidence());
}

TEST_F(InterventionsTest, RefusedTheVerdictIsAsItWas) {
  Fresh(false);
  SlowLink();
  Pass(60);
  ASSERT_THAT(All(), Not(IsEmpty()));
  const std::string without = Gist(All()[0]);
  Fresh(true);
  mover_->refuses = "the operator forbids it";
  SlowLink();
  Pass(60);
  ASSERT_TRUE(Experiment().has_value()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "refused");
  EXPECT_THAT(Experiment()->lines(), Contains(HasSubstr("the operator forbids it")));
  EXPECT_EQ(Gist(All()[0]), without);
  EXPECT_EQ(mover_->orders.size(), 1U) << "not again and again: there is a pause";
}

TEST_F(InterventionsTest, WithoutAnAnswerTheVerdictIsAsItWas) {
  mover_->silent = true;
  SlowLink();
  Pass(120, [&] { return IsOver(); });
  ASSERT_TRUE(IsOver()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "no answer");
  ASSERT_FALSE(mover_->orders.empty());
  EXPECT_EQ(mover_->orders.back().kind, MoveOrder::Kind::kEnd) << "it is told to move everything back";
  EXPECT_NE(All()[0].confirmed_by(), "moved");
}

TEST_F(InterventionsTest, NoMoreThanSoManyAnHourAndAVerdict) {
  policy_.intervention.pause_ns = kSecondNs;
  policy_.intervention.per_verdict = 3;
  policy_.intervention.per_hour = 2;
  Start(true);
  mover_->refuses = "no other path";
  SlowLink();
  Pass(200);
  EXPECT_EQ(mover_->orders.size(), 2U);
  policy_.intervention.per_hour = 100;
  handler_->SetPolicy(policy_);
  Pass(10);
  EXPECT_EQ(mover_->orders.size(), 2U) << "told that it may not, it waits for an hour";
}

// The master dies in the middle: the next one has everything moved back, and says so.
TEST_F(InterventionsTest, AfterARestartEverythingIsMovedBack) {
  SlowLink();
  Pass(90, [&] { return !mover_->held.empty(); });
  ASSERT_THAT(mover_->held, Not(IsEmpty())) << Story();
  Pass(3);
  const std::string id = Experiment()->id();
  Start(true, 2);
  Pass(2);
  EXPECT_THAT(mover_->held, IsEmpty());
  EXPECT_EQ(mover_->orders.back().experiment, id);
  ASSERT_TRUE(Experiment().has_value()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "interrupted") << Story();
  EXPECT_THAT(Experiment()->lines(), Contains(HasSubstr("queue pairs back")));
  EXPECT_NE(Experiment()->ended_unix_ns(), 0);
}

// Also one that may not make any itself.
TEST_F(InterventionsTest, AMasterThatMayNotMoveEndsWhatAnotherBegan) {
  SlowLink();
  Pass(90, [&] { return !mover_->held.empty(); });
  Start(false, 2);
  Pass(2);
  EXPECT_THAT(mover_->held, IsEmpty());
}

TEST_F(InterventionsTest, AStoppedRankEndsItAndNothingStaysMoved) {
  SlowLink();
  Pass(90, [&] { return !mover_->held.empty(); });
  ASSERT_THAT(mover_->held, Not(IsEmpty())) << Story();
  sim_->Heal();
  sim_->Inject(Fault::kStop, 2);
  Pass(30, [&] { return IsOver(); });
  ASSERT_TRUE(IsOver()) << Story();
  EXPECT_EQ(Experiment()->outcome(), "disturbed") << Story();
  EXPECT_THAT(mover_->held, IsEmpty());
}

// Over many seeds: what is settled is right, and nothing else is ever confirmed by moves.
TEST(InterventionsProperty, WhatIsSettledIsRight) {
  size_t settled = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    for (const Fault fault : {Fault::kSlowLink, Fault::kSlowNic}) {
      TrainingShape shape;
      shape.tensor = 1;
      shape.pipeline = 1;
      shape.data = 3 + static_cast<uint32_t>(seed % 4);
      shape.queue_pairs = 1 + static_cast<uint32_t>(seed % 2);
      shape.hosts_per_leaf = 1;
      shape.spines = 2 + static_cast<uint32_t>(seed % 2);
      TrainingSim sim(shape, seed);
      SimulatedMover mover(&sim, shape.spines);
      SimulatedPaths paths(&sim);
      VerdictStore store(":memory:");
      service::Metrics metrics;
      HandlerOptions options;
      options.job = "job";
      options.master_epoch = 1;
      options.intervene = true;
      C4dHandler handler(options, &store, &metrics, &paths, &mover);
      const auto pass = [&](double seconds) {
        for (int step = 0; step < static_cast<int>(seconds * 4); ++step) {
          for (const v1::TelemetryBatch& batch : sim.Step()) {
            (void)handler.Ingest(batch, {sim.now_ns(), sim.unix_ns()});
          }
          handler.Tick({sim.now_ns(), sim.unix_ns()});
        }
      };
      pass(35);
      const uint32_t target = static_cast<uint32_t>(seed) % shape.data;
      sim.Inject(fault, fault == Fault::kSlowLink ? target * shape.spines : target);
      pass(60);
      const v1::ListVerdictsReply all = handler.ListVerdicts(true);
      for (const v1::Verdict& verdict : all.verdicts()) {
        if (verdict.confirmed_by() != "moved") continue;
        ++settled;
        const v1::Culprit& culprit = verdict.culprit();
        const std::string story = service::VerdictJson(verdict, 1);
        if (fault == Fault::kSlowNic) {
          const bool candidate = std::find(culprit.candidates().begin(), culprit.candidates().end(),
                                           static_cast<int32_t>(target)) != culprit.candidates().end();
          EXPECT_TRUE(culprit.nic() == sim.nic(target) || candidate) << seed << "\n" << story;
          EXPECT_THAT(culprit.links(), IsEmpty()) << seed << "\n" << story;
        } else {
          bool named = culprit.cable() == sim.target_cable();
          for (const std::string& link : culprit.links())
            named = named || CableOf(link) == sim.target_cable();
          EXPECT_TRUE(named) << seed << "\n" << story;
          EXPECT_EQ(culprit.nic(), "") << seed << "\n" << story;
        }
      }
      EXPECT_THAT(mover.held, IsEmpty()) << seed;
    }
  }
  EXPECT_GT(settled, 8U);
}

}  // namespace
}  // namespace c4::c4d
