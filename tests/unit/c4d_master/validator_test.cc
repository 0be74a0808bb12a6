// The validation of a job in simulated time: agents and libraries are a few lines that answer what the master
// orders, or do not.
#include "c4d_master/validation/validator.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "c4d_master/validation/plan.h"
#include "c4d_master/validation/results.h"

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;

// A node: its agent, and the libraries of its ranks, which call so often.
class FakeNode {
 public:
  struct Rank {
    uint64_t counted = 0;
    uint64_t step = 1;  // calls of a turn
    uint64_t cut = UINT64_MAX;
    bool armed = false;
    bool held = false;
    bool stopped = false;  // never comes
    int64_t held_at_ns = 0;
    int64_t hold_ns = 0;
    double gflops = 10;
    int64_t last_held_ns = 0;
  };

  FakeNode(Validator* validator, std::string host, const std::vector<uint32_t>& pids)
      : validator_(validator), host_(std::move(host)) {
    for (const uint32_t pid : pids) ranks_[pid] = {};
  }

  void Connect(Now now) {
    session_ =
        validator_->Connect([this](const v1::ValidationToAgent& message) { orders_.push_back(message); });
    v1::AgentToValidation hello;
    hello.mutable_attends()->set_host(host_);
    validator_->Take(session_, hello, now);
  }
  void Disconnect(Now now) {
    validator_->Disconnect(session_, now);
    session_ = 0;
    for (auto& [pid, rank] : ranks_) Release(pid, 2, now);
  }

  // Calls go on, and orders are carried out.
  void Turn(Now now) {
    for (auto& [pid, rank] : ranks_) {
      if (rank.held && now.monotonic_ns - rank.held_at_ns >= rank.hold_ns) Release(pid, 4, now);
      if (rank.stopped) continue;
      for (uint64_t i = 0; i < rank.step; ++i) {
        if (rank.armed && rank.counted >= rank.cut) {
          Hold(pid, now);
          break;
        }
        ++rank.counted;
      }
    }
    std::vector<v1::ValidationToAgent> orders;
    orders.swap(orders_);
    for (const v1::ValidationToAgent& order : orders) Heed(order, now);
  }

  Rank& rank(uint32_t pid) { return ranks_.at(pid); }
  bool AnyHeld() const {
    for (const auto& [pid, rank] : ranks_) {
      if (rank.held) return true;
    }
    return false;
  }

  bool answers_tests = true;
  bool answers_prepare = true;
  uint32_t refuses = 0;  // an arm, for that reason
  std::set<std::string> faults;
  std::map<std::string, double> link_rates;  // by target, MiB/s; 100 otherwise
  std::string tester_fault;
  std::vector<std::string> log;

 private:
  void Say(v1::AgentToValidation message, Now now) {
    message.set_validation(number_);
    if (session_ != 0) validator_->Take(session_, message, now);
  }
  void Report(uint32_t pid, uint32_t phase, uint32_t reason, Now now) {
    Rank& rank = ranks_.at(pid);
    v1::AgentToValidation message;
    v1::HoldReport* const report = message.mutable_hold();
    report->set_pid(pid);
    report->set_phase(phase);
    report->set_reason(reason);
    report->set_calls(rank.cut);
    report->set_counted(rank.counted);
    if (rank.held_at_ns != 0) report->set_held_ns(static_cast<uint64_t>(now.monotonic_ns - rank.held_at_ns));
    Say(message, now);
  }
  void Hold(uint32_t pid, Now now) {
    Rank& rank = ranks_.at(pid);
    if (rank.held) return;
    rank.held = true;
    if (rank.held_at_ns == 0) rank.held_at_ns = now.monotonic_ns;
    Report(pid, 2, 0, now);
    if (rank.held) Report(pid, 3, 0, now);
  }
  void Release(uint32_t pid, uint32_t reason, Now now) {
    Rank& rank = ranks_.at(pid);
    if (!rank.armed) return;
    rank.armed = false;
    if (rank.held) rank.last_held_ns = now.monotonic_ns - rank.held_at_ns;
    rank.held = false;
    Report(pid, 4, reason, now);
    rank.held_at_ns = 0;
  }
  void Heed(const v1::ValidationToAgent& order, Now now) {
    number_ = order.validation();
    if (order.has_prepare() && answers_prepare) {
      for (const auto& process : order.prepare().processes()) {
        v1::AgentToValidation message;
        message.mutable_ready()->set_pid(process.pid());
        message.mutable_ready()->set_device("CPU");
        message.mutable_ready()->set_port(1000 + process.pid());
        message.mutable_ready()->set_fault(tester_fault);
        Say(message, now);
      }
    }
    if (order.has_arm()) {
      for (const auto& process : order.arm().processes()) {
        Rank& rank = ranks_.at(process.pid());
        if (rank.stopped && order.arm().calls() != UINT64_MAX) continue;
        rank.armed = true;
        rank.cut = order.arm().calls();
        rank.hold_ns = order.arm().hold_ms() * kMs;
        if (refuses != 0) {
          rank.armed = false;
          Report(process.pid(), 5, refuses, now);
          continue;
        }
        const bool was_held = rank.held;
        rank.held = rank.held && rank.counted >= rank.cut;
        if (was_held && rank.held) {
          Report(process.pid(), 2, 0, now);
          Report(process.pid(), 3, 0, now);
        } else {
          Report(process.pid(), 1, 0, now);
        }
      }
    }
    if (order.has_devices() && answers_tests) {
      log.push_back("devices");
      for (const uint32_t pid : order.devices().pids()) {
        v1::AgentToValidation message;
        message.mutable_device()->set_pid(pid);
        v1::DeviceFigure* const figure = message.mutable_device()->add_figures();
        figure->set_test("fp32");
        figure->set_gflops(ranks_.at(pid).gflops);
        Say(message, now);
      }
    }
    if (order.has_transfer() && answers_tests) {
      log.push_back(order.transfer().to());
      v1::AgentToValidation message;
      message.mutable_transfer()->set_transfer(order.transfer().transfer());
      const auto rate = link_rates.find(order.transfer().to());
      for (int i = 0; i < 4; ++i) {
        message.mutable_transfer()->add_stream_mib_s((rate == link_rates.end() ? 100 : rate->second) / 4);
      }
      Say(message, now);
    }
    if (order.has_end()) {
      for (auto& [pid, rank] : ranks_) Release(pid, 1, now);
    }
  }

  Validator* validator_;
  const std::string host_;
  uint64_t session_ = 0;
  uint64_t number_ = 0;
  std::map<uint32_t, Rank> ranks_;
  std::vector<v1::ValidationToAgent> orders_;
};

class ValidatorTest : public testing::Test {
 protected:
  // `hosts` of them in a ring, two ranks each.
  void Build(size_t hosts) {
    for (size_t i = 0; i < hosts; ++i) {
      const auto pid = static_cast<uint32_t>(10 + 2 * i);
      nodes_.push_back(std::make_unique<FakeNode>(&validator_, Host(i), std::vector<uint32_t>{pid, pid + 1}));
      nodes_.back()->Connect(now_);
      for (const uint32_t rank : {0u, 1u}) {
        plan_.processes.push_back({Host(i), pid + rank, static_cast<int32_t>(2 * i + rank), true, true});
      }
    }
    for (size_t i = 0; i < hosts && hosts > 1; ++i) {
      plan_.links.push_back({2 * i, 2 * ((i + 1) % hosts), Address(i), Address((i + 1) % hosts)});
    }
    plan_.communicator_id = 7;
  }
  static std::string Host(size_t i) { return "host" + std::to_string(i); }
  static std::string Address(size_t i) { return "10.0.0." + std::to_string(i + 1); }

  uint64_t Begin(v1::RunValidationRequest request = {}) {
    const auto number = validator_.Begin(plan_, request, false, now_);
    EXPECT_TRUE(number.ok()) << number.status();
    return number.value_or(0);
  }
  void Turn(int64_t ns = 10 * kMs) {
    now_.monotonic_ns += ns;
    now_.unix_ns += ns;
    for (const auto& node : nodes_) node->Turn(now_);
    validator_.Tick(now_);
  }
  // Until it is over; at most a simulated minute and a half.
  const v1::Validation& Finish() {
    for (int i = 0; i < 9000 && validator_.running(); ++i) Turn();
    EXPECT_FALSE(validator_.running());
    return *validator_.Find(0);
  }
  void ExpectNobodyHeld() {
    for (int i = 0; i < 400; ++i) Turn();
    for (const auto& node : nodes_) EXPECT_FALSE(node->AnyHeld());
  }
  FakeNode& node(size_t i) { return *nodes_[i]; }

  Now now_{1'000'000'000, 1'700'000'000'000'000'000};
  Validator validator_{{.job = "job"}};
  std::vector<std::unique_ptr<FakeNode>> nodes_;
  ValidationPlan plan_;
};

TEST_F(ValidatorTest, DevicesAndLinksAreTestedWhileAllStandStill) {
  Build(4);
  const uint64_t number = Begin();
  node(2).rank(14).gflops = 4;
  node(1).link_rates["10.0.0.3:1014"] = 20;
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.number(), number);
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_DONE) << result.why();
  EXPECT_EQ(result.processes_held(), 8u);
  EXPECT_EQ(result.passes(), 2u) << "a ring of four";
  EXPECT_EQ(std::count(node(1).log.begin(), node(1).log.end(), "10.0.0.3:1014"), 4)
      << "what looks slow is tried again";
  for (const v1::ValidatedDevice& device : result.devices()) {
    EXPECT_EQ(device.fault(), "");
    EXPECT_EQ(device.slow(), device.rank() == 4) << device.ratio();
  }
  for (const v1::ValidatedLink& link : result.links()) {
    EXPECT_EQ(link.fault(), "");
    EXPECT_EQ(link.slow(), link.from_rank() == 2) << link.ratio();
  }
  EXPECT_GT(result.held_ns(), 0);
  EXPECT_LT(result.held_ns(), 3000 * kMs);
  EXPECT_EQ(EvidenceOf(result).size(), 3u);
  ExpectNobodyHeld();
}

TEST_F(ValidatorTest, AllAreHeldAtTheSameCallHoweverFarTheyWere) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    nodes_.clear();
    plan_ = {};
    validator_.~Validator();
    new (&validator_) Validator({.job = "job"});
    Build(1 + random() % 6);
    std::set<uint64_t> at;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const uint32_t rank : {0u, 1u}) {
        const auto pid = static_cast<uint32_t>(10 + 2 * i + rank);
        node(i).rank(pid).counted = 1000 + random() % 40;
        node(i).rank(pid).step = 1 + random() % 5;
      }
    }
    Begin();
    bool stood_still = false;
    for (int turn = 0; turn < 5000 && validator_.running(); ++turn) {
      Turn();
      if (validator_.Find(0)->state() != v1::VALIDATION_STATE_TESTING || stood_still) continue;
      stood_still = true;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        for (const uint32_t rank : {0u, 1u})
          at.insert(node(i).rank(static_cast<uint32_t>(10 + 2 * i + rank)).counted);
      }
    }
    EXPECT_EQ(validator_.Find(0)->state(), v1::VALIDATION_STATE_DONE)
        << "seed " << seed << validator_.Find(0)->why();
    EXPECT_LE(at.size(), 1u) << "seed " << seed;
  }
}

TEST_F(ValidatorTest, ASecondOneIsRefused) {
  Build(2);
  Begin();
  const auto second = validator_.Begin(plan_, {}, false, now_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  Finish();
  EXPECT_NE(Begin(), 0u);
  Finish();
}

TEST_F(ValidatorTest, AHostWithoutAnAgentIsKnownBeforeAnybodyIsHeld) {
  Build(2);
  node(1).Disconnect(now_);
  const auto begun = validator_.Begin(plan_, {}, false, now_);
  EXPECT_THAT(std::string(begun.status().message()), HasSubstr("host1"));
  EXPECT_FALSE(validator_.running());
}

TEST_F(ValidatorTest, ARankThatNeverComesHoldsNobodyLong) {
  Build(3);
  node(2).rank(15).stopped = true;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_GIVEN_UP);
  EXPECT_THAT(result.why(), HasSubstr("rank 5 (pid 15 on host2)"));
  EXPECT_LE(result.held_ns(), 3000 * kMs);
  EXPECT_GT(result.held_ns(), 0);
  ExpectNobodyHeld();
}

TEST_F(ValidatorTest, NobodyComes) {
  Build(1);
  for (const uint32_t pid : {10u, 11u}) node(0).rank(pid).stopped = true;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_GIVEN_UP);
  EXPECT_EQ(result.held_ns(), 0);
}

TEST_F(ValidatorTest, AnAgentThatIsLostEndsIt) {
  Build(3);
  Begin();
  for (int i = 0; i < 300 && validator_.Find(0)->processes_held() < 2; ++i) Turn();
  node(1).Disconnect(now_);
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_GIVEN_UP);
  EXPECT_THAT(result.why(), HasSubstr("host1"));
  ExpectNobodyHeld();
  // Once it is back, another one may begin.
  node(1).Connect(now_);
  Begin();
  EXPECT_EQ(Finish().state(), v1::VALIDATION_STATE_DONE);
}

TEST_F(ValidatorTest, ARankThatRefusesEndsIt) {
  Build(2);
  node(1).refuses = 9;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_GIVEN_UP);
  EXPECT_THAT(result.why(), HasSubstr("C4_HOLD_MS=0"));
  EXPECT_EQ(result.held_ns(), 0);
}

TEST_F(ValidatorTest, TestersThatCannotStartHoldNobody) {
  Build(2);
  for (const auto& item : nodes_) item->tester_fault = "no OpenBLAS";
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_GIVEN_UP);
  EXPECT_THAT(result.why(), HasSubstr("no OpenBLAS"));
  EXPECT_EQ(result.held_ns(), 0);
}

TEST_F(ValidatorTest, OneTesterLessLeavesItsPartUntested) {
  Build(3);
  node(1).tester_fault = "no OpenBLAS";
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_DONE);
  size_t faults = 0;
  for (const v1::ValidatedDevice& device : result.devices()) {
    EXPECT_EQ(device.fault().empty(), device.host() != "host1");
  }
  for (const v1::ValidatedLink& link : result.links()) faults += link.fault().empty() ? 0 : 1;
  EXPECT_EQ(faults, 2u);
}

TEST_F(ValidatorTest, TestsThatDoNotEndAreLeftBehind) {
  Build(3);
  node(0).answers_tests = false;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_DONE) << result.why();
  EXPECT_THAT(result.devices(0).fault(), HasSubstr("in time"));
  EXPECT_EQ(result.devices(2).fault(), "");
  EXPECT_LE(result.held_ns(), 3000 * kMs);
}

TEST_F(ValidatorTest, TimeIsKeptHoweverManyPassesThereAre) {
  Build(40);
  plan_.links.clear();
  for (size_t a = 0; a < 40; ++a) {
    for (size_t b = 0; b < 40; ++b) {
      if (a != b) plan_.links.push_back({2 * a, 2 * b, Address(a), Address(b)});
    }
  }
  for (const auto& item : nodes_) item->answers_tests = true;
  node(7).answers_tests = false;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.state(), v1::VALIDATION_STATE_DONE);
  EXPECT_LE(result.held_ns(), 3000 * kMs);
  EXPECT_THAT(result.why(), HasSubstr("too short"));
}

// A validation's first figures are what later ones are measured by, where nothing was slow then.
TEST_F(ValidatorTest, EachPartIsComparedWithItsOwnFirstFigures) {
  Build(1);
  Begin();
  Finish();
  node(0).rank(11).gflops = 7;
  Begin();
  const v1::Validation& result = Finish();
  EXPECT_EQ(result.devices(1).ratio(), 0) << "two have no median";
  EXPECT_NEAR(result.devices(1).ratio_to_first(), 0.7, 1e-9);
  EXPECT_TRUE(result.devices(1).slow());
  EXPECT_FALSE(result.devices(0).slow());
}

TEST_F(ValidatorTest, WhoeverBeganItHearsOfItsEndOnce) {
  Build(2);
  int times = 0;
  const auto count = [&](const v1::Validation& validation) {
    ++times;
    EXPECT_EQ(validation.state(), v1::VALIDATION_STATE_DONE);
    EXPECT_TRUE(validation.by_itself());
  };
  ASSERT_TRUE(validator_.Begin(plan_, {}, true, now_, count).ok());
  EXPECT_FALSE(validator_.Begin(plan_, {}, true, now_, count).ok());
  Finish();
  EXPECT_EQ(times, 1);
  Begin();
  Finish();
  EXPECT_EQ(times, 1);
}

// Numbers go by the wall clock, which may be set back.
TEST_F(ValidatorTest, ClocksThatJump) {
  Build(2);
  const uint64_t first = Begin();
  for (int i = 0; i < 20; ++i) Turn();
  now_.unix_ns -= 3600 * kSecondNs;
  EXPECT_EQ(Finish().state(), v1::VALIDATION_STATE_DONE);
  EXPECT_GT(Begin(), first);
  now_.unix_ns += 7200 * kSecondNs;
  EXPECT_EQ(Finish().state(), v1::VALIDATION_STATE_DONE);
}

// Whatever is lost, doubled or late, and whoever goes: it ends, nobody stays held, and nobody was held longer
// than the limit.
TEST_F(ValidatorTest, AnyInterleavingEnds) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    nodes_.clear();
    plan_ = {};
    validator_.~Validator();
    new (&validator_) Validator({.job = "job"});
    const size_t hosts = 1 + random() % 5;
    Build(hosts);
    const auto trouble_at = static_cast<int>(random() % 120);
    const size_t who = random() % hosts;
    const auto pid = static_cast<uint32_t>(10 + 2 * who + random() % 2);
    Begin();
    for (int turn = 0; turn < 9000 && validator_.running(); ++turn) {
      if (turn == trouble_at) {
        switch (random() % 6) {
          case 0:
            node(who).Disconnect(now_);
            break;
          case 1:
            node(who).rank(pid).stopped = true;
            break;
          case 2:
            node(who).answers_tests = false;
            break;
          case 3:
            node(who).Connect(now_);  // another session of the same host
            break;
          case 4:
            validator_.GiveUp("enough", now_);
            break;
          default:
            node(who).rank(pid).step = 50;
            break;
        }
      }
      Turn(static_cast<int64_t>(1 + random() % 30) * kMs);
    }
    ASSERT_FALSE(validator_.running()) << "seed " << seed;
    EXPECT_LE(validator_.Find(0)->held_ns(), 3100 * kMs) << "seed " << seed;
    ExpectNobodyHeld();
  }
}

}  // namespace
}  // namespace c4::c4d
