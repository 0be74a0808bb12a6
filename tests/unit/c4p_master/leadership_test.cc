// Several path masters, one store, one leader: 1,000 seeded schedules of crashes, pauses and partitions, of
// lost requests and lost answers. Nobody is ever told what a leader decided that was one no more, nothing
// that somebody was told is lost, and no port is given out twice; a test without the store's fence shows that
// the checks find such a thing. And once the faults are over somebody leads within three seconds.
#include "c4p_master/state/leadership.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace c4::c4p {
namespace {

constexpr int64_t kMs = 1'000'000;

// Events in simulated time.
class World {
 public:
  void At(int64_t at_ns, std::function<void()> what) { events_.push({at_ns, ++number_, std::move(what)}); }
  void Run(int64_t until_ns) {
    while (!events_.empty() && events_.top().at_ns <= until_ns) {
      const Event event = events_.top();
      events_.pop();
      now_ns = event.at_ns;
      event.what();
    }
    now_ns = until_ns;
  }
  int64_t now_ns = 0;

 private:
  struct Event {
    int64_t at_ns;
    uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::pair(other.at_ns, other.number) < std::pair(at_ns, number);
    }
  };
  std::priority_queue<Event> events_;
  uint64_t number_ = 0;
};

// What the masters share: the lease, the epoch that it stands at, and which port each connection has.
struct Shared {
  LeaseSeen lease;
  int64_t revision = 0;
  uint64_t epoch = 0;
  std::map<int, int> ports;
  bool fenced = true;  // false: whoever writes is believed
};

struct Schedule {
  uint64_t seed = 0;
  bool faults = true;
  bool fenced = true;
  int masters = 3;
  int64_t faults_until_ns = 40'000 * kMs;
};

class Trial {
 public:
  explicit Trial(const Schedule& schedule) : schedule_(schedule), random_(schedule.seed) {
    shared_.fenced = schedule.fenced;
    for (int i = 0; i < schedule.masters; ++i) {
      masters_.emplace_back();
      Start(i);
      Tick(i);
    }
    if (schedule.faults) NextFault();
  }
  void Run(int64_t until_ns) { world_.Run(until_ns); }

  int Leader() const {
    int leader = -1;
    for (size_t i = 0; i < masters_.size(); ++i) {
      const Master& one = masters_[i];
      if (one.up && one.loaded && one.lease->state(world_.now_ns) == Leadership::State::kLeads) {
        leader = static_cast<int>(i);
      }
    }
    return leader;
  }
  void Kill(int master) { masters_[static_cast<size_t>(master)].up = false; }
  int64_t now_ns() const { return world_.now_ns; }
  size_t accepted() const { return told_.size(); }
  size_t leaderships() const { return epochs_.size(); }

  std::vector<std::string> broken;  // what may never be

 private:
  struct Master {
    std::optional<Leadership> lease;
    int life = 0;
    bool up = true;
    int64_t paused_until_ns = 0;  // a process that is stopped, or a machine that swaps
    bool cut_off = false;         // from the store
    bool loaded = false;
    bool loading = false;
    bool ending = false;
    std::map<int, int> ports;  // as it believes
  };

  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Faulty() const { return schedule_.faults && world_.now_ns < schedule_.faults_until_ns; }
  bool Chance(double share) { return std::bernoulli_distribution(share)(random_); }

  void Start(int index) {
    Master& master = masters_[static_cast<size_t>(index)];
    ++master.life;
    master.up = true;
    master.loaded = master.loading = master.ending = false;
    master.ports.clear();
    // Clocks are anywhere: an hour ahead, an hour behind.
    const auto wished =
        static_cast<uint64_t>(3'600'000 + world_.now_ns / kMs + Between(-3'600'000, 3'600'000));
    master.lease.emplace("m" + std::to_string(index) + "." + std::to_string(master.life), wished,
                         LeaseTimes());
  }

  // A request to the store and its answer: either may be lost, and whoever was paused meanwhile hears late.
  template <typename Answer>
  void Ask(int index, std::function<Answer()> at_store, std::function<void(std::optional<Answer>)> then) {
    const int life = masters_[static_cast<size_t>(index)].life;
    const int64_t timeout_ns = 500 * kMs;
    const bool lossy = Faulty();
    const int64_t there_ns = Between(1, lossy && Chance(0.02) ? 2000 : 20) * kMs;
    const int64_t back_ns = Between(1, lossy && Chance(0.02) ? 2000 : 20) * kMs;
    const bool lost = lossy && Chance(0.02);
    const bool answer_lost = lossy && Chance(0.02);
    auto answered = std::make_shared<bool>(false);
    const auto tell = [this, index, life, answered, then](std::optional<Answer> answer) {
      WhenAwake(index, life, [answered, then, answer = std::move(answer)] {
        if (!std::exchange(*answered, true)) then(answer);
      });
    };
    world_.At(world_.now_ns + there_ns, [this, index, at_store, tell, lost, answer_lost, back_ns] {
      if (lost || masters_[static_cast<size_t>(index)].cut_off) return;
      Answer answer = at_store();
      world_.At(world_.now_ns + back_ns, [this, index, tell, answer, answer_lost] {
        if (!answer_lost && !masters_[static_cast<size_t>(index)].cut_off) tell(answer);
      });
    });
    world_.At(world_.now_ns + timeout_ns, [tell] { tell(std::nullopt); });
  }
  void WhenAwake(int index, int life, std::function<void()> what) {
    const Master& master = masters_[static_cast<size_t>(index)];
    if (master.life != life || !master.up) return;
    if (world_.now_ns >= master.paused_until_ns) return what();
    world_.At(master.paused_until_ns, [this, index, life, what] { WhenAwake(index, life, what); });
  }

  void Tick(int index) {
    Master& master = masters_[static_cast<size_t>(index)];
    const int64_t pause_ns = master.paused_until_ns - world_.now_ns;
    world_.At(world_.now_ns + std::max<int64_t>(20 * kMs, pause_ns), [this, index] { Tick(index); });
    if (!master.up || pause_ns > 0) return;
    if (master.lease->state(world_.now_ns) == Leadership::State::kLost) {
      // The process ends, which takes a while, and is started again.
      if (std::exchange(master.ending, true)) return;
      world_.At(world_.now_ns + 1000 * kMs, [this, index, life = master.life] {
        if (masters_[static_cast<size_t>(index)].life == life) Start(index);
      });
      return;
    }
    if (const std::optional<Leadership::Step> step = master.lease->Next(world_.now_ns))
      TakeStep(index, *step);
    if (master.lease->state(world_.now_ns) != Leadership::State::kLeads) return;
    if (!master.loaded) {
      Load(index);
    } else if (Chance(0.2)) {
      Decide(index);
    }
  }

  void TakeStep(int index, const Leadership::Step& step) {
    if (!step.write) {
      Ask<LeaseSeen>(
          index, [this] { return shared_.lease; },
          [this, index](std::optional<LeaseSeen> seen) {
            Leadership& lease = *masters_[static_cast<size_t>(index)].lease;
            seen ? lease.Seen(*seen, world_.now_ns) : lease.Failed(world_.now_ns);
          });
      return;
    }
    Ask<int64_t>(
        index,
        [this, step]() -> int64_t {
          if (shared_.lease.revision != step.revision) return 0;
          shared_.lease = {step.record, ++shared_.revision};
          if (step.takes) {
            if (step.record.epoch <= shared_.epoch) broken.emplace_back("an epoch was led twice");
            shared_.epoch = step.record.epoch;
            epochs_.insert(shared_.epoch);
          }
          return shared_.lease.revision;
        },
        [this, index](std::optional<int64_t> revision) {
          Leadership& lease = *masters_[static_cast<size_t>(index)].lease;
          revision ? lease.Wrote(*revision != 0, *revision, world_.now_ns) : lease.Failed(world_.now_ns);
        });
  }

  void Load(int index) {
    Master& master = masters_[static_cast<size_t>(index)];
    if (std::exchange(master.loading, true)) return;
    Ask<std::map<int, int>>(
        index, [this] { return shared_.ports; },
        [this, index](std::optional<std::map<int, int>> ports) {
          Master& leader = masters_[static_cast<size_t>(index)];
          leader.loading = false;
          if (!ports) return;
          leader.ports = *std::move(ports);
          leader.loaded = true;
        });
  }

  // A connection asks, and is told once it is written down.
  void Decide(int index) {
    Master& master = masters_[static_cast<size_t>(index)];
    const int connection = next_connection_++;
    int port = 1;
    for (const auto& [other, its] : master.ports) port = std::max(port, its + 1);
    master.ports[connection] = port;
    const uint64_t epoch = master.lease->epoch();
    // It may be stopped at any moment, also between having looked at its lease and asking.
    if (Faulty() && Chance(0.01)) master.paused_until_ns = world_.now_ns + Between(1, 4000) * kMs;
    world_.At(std::max(world_.now_ns, master.paused_until_ns),
              [this, index, life = master.life, connection, port, epoch] {
                const Master& now = masters_[static_cast<size_t>(index)];
                if (now.life == life && now.up) Write(index, connection, port, epoch);
              });
  }

  void Write(int index, int connection, int port, uint64_t epoch) {
    Ask<bool>(
        index,
        [this, connection, port, epoch] {
          if (shared_.fenced && shared_.epoch != epoch) return false;
          shared_.ports[connection] = port;
          return true;
        },
        [this, connection, port](std::optional<bool> written) {
          if (!written || !*written) return;
          world_.At(world_.now_ns + Between(1, 20) * kMs,
                    [this, connection, port] { Hear(connection, port); });
        });
  }

  // Agents believe whoever tells them.
  void Hear(int connection, int port) {
    const auto written = shared_.ports.find(connection);
    if (written == shared_.ports.end() || written->second != port) {
      broken.push_back("connection " + std::to_string(connection) + " was told what is not written down");
    }
    const auto [other, added] = told_.try_emplace(port, connection);
    if (!added) {
      broken.push_back("port " + std::to_string(port) + " was given to connections " +
                       std::to_string(other->second) + " and " + std::to_string(connection));
    }
  }

  void NextFault() {
    world_.At(world_.now_ns + Between(100, 3000) * kMs, [this] {
      if (world_.now_ns > schedule_.faults_until_ns) {
        for (Master& master : masters_) master.cut_off = false;
        for (size_t i = 0; i < masters_.size(); ++i) {
          if (!masters_[i].up) Start(static_cast<int>(i));
        }
        return;
      }
      const int index = static_cast<int>(Between(0, schedule_.masters - 1));
      Master& master = masters_[static_cast<size_t>(index)];
      switch (Between(0, 4)) {
        case 0:
          master.up = false;
          break;
        case 1:
          if (!master.up) Start(index);
          break;
        case 2:
          master.paused_until_ns = world_.now_ns + Between(10, 5000) * kMs;
          break;
        default:
          master.cut_off = !master.cut_off;
      }
      NextFault();
    });
  }

  const Schedule schedule_;
  std::mt19937_64 random_;
  World world_;
  Shared shared_;
  std::deque<Master> masters_;
  int next_connection_ = 0;
  std::map<int, int> told_;  // connections, by port
  std::set<uint64_t> epochs_;
};

TEST(LeadershipTest, ThousandSchedulesOfCrashesAndPartitions) {
  size_t accepted = 0;
  size_t leaderships = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    Trial trial({.seed = seed});
    trial.Run(45'000 * kMs);
    ASSERT_THAT(trial.broken, testing::IsEmpty()) << "seed " << seed;
    trial.Run(50'000 * kMs);
    EXPECT_GE(trial.Leader(), 0) << "seed " << seed << ": the faults are over, and nobody leads";
    accepted += trial.accepted();
    leaderships += trial.leaderships();
  }
  EXPECT_GT(leaderships, 5000u) << "too few takeovers to say anything";
  printf("%zu leaderships, %zu answers taken\n", leaderships, accepted);
}

// The checks can fail: without the fence a leader that was paused or cut off does harm.
TEST(LeadershipTest, WithoutTheFenceTheChecksFindHarm) {
  size_t harmed = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Trial trial({.seed = seed, .fenced = false});
    trial.Run(45'000 * kMs);
    harmed += trial.broken.empty() ? 0 : 1;
  }
  EXPECT_GT(harmed, 0u);
}

TEST(LeadershipTest, AnotherLeadsWithinThreeSeconds) {
  int64_t longest_ns = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Trial trial({.seed = seed, .faults = false});
    trial.Run(static_cast<int64_t>(5000 + seed * 7) * kMs);
    const int leader = trial.Leader();
    ASSERT_GE(leader, 0) << "seed " << seed;
    EXPECT_EQ(trial.leaderships(), 1u) << "seed " << seed << ": the lease went round for no reason";
    trial.Kill(leader);
    const int64_t killed_ns = trial.now_ns();
    while (trial.Leader() < 0 && trial.now_ns() < killed_ns + 10'000 * kMs)
      trial.Run(trial.now_ns() + 10 * kMs);
    longest_ns = std::max(longest_ns, trial.now_ns() - killed_ns);
  }
  printf("another leads after %.2f s at the longest of 200\n", 1e-9 * static_cast<double>(longest_ns));
  EXPECT_LE(longest_ns, 3000 * kMs);
}

TEST(LeadershipTest, ALeaderThatCannotRenewStopsBeforeOthersTakeIt) {
  Leadership lease("a", 7, {});
  ASSERT_FALSE(lease.Next(0)->write);
  lease.Seen({}, 10 * kMs);
  const std::optional<Leadership::Step> take = lease.Next(10 * kMs);
  ASSERT_TRUE(take && take->takes);
  EXPECT_EQ(take->record.epoch, 7u);
  lease.Wrote(true, 1, 30 * kMs);
  EXPECT_EQ(lease.state(30 * kMs), Leadership::State::kLeads);
  for (int64_t now_ns = 310 * kMs; now_ns < 1009 * kMs; now_ns += kMs) {
    if (lease.Next(now_ns)) lease.Failed(now_ns);
    EXPECT_EQ(lease.state(now_ns), Leadership::State::kLeads);
  }
  EXPECT_EQ(lease.state(1010 * kMs), Leadership::State::kLost);
  EXPECT_FALSE(lease.Next(2000 * kMs));
}

// A renewal that was written, but nobody said so.
TEST(LeadershipTest, ARenewalOfUnknownEndIsLookedAt) {
  Leadership lease("a", 7, {});
  (void)lease.Next(0);
  lease.Seen({{"b", 9, 3}, 5}, 0);
  for (int64_t now_ns = 0; now_ns <= 1500 * kMs; now_ns += 50 * kMs) {
    const std::optional<Leadership::Step> step = lease.Next(now_ns);
    if (!step) continue;
    ASSERT_FALSE(step->write) << "it is b's, for all that is known";
    lease.Seen({{"b", 9, 3}, 5}, now_ns);
  }
  std::optional<Leadership::Step> step = lease.Next(1500 * kMs);
  ASSERT_TRUE(step && step->takes);
  EXPECT_EQ(step->record, (LeaseRecord{"a", 10, 4})) << "a later epoch than b's, whatever the clock says";
  lease.Wrote(true, 6, 1501 * kMs);
  step = lease.Next(1800 * kMs);
  ASSERT_TRUE(step && step->write && !step->takes);
  lease.Failed(1850 * kMs);
  step = lease.Next(1925 * kMs);
  ASSERT_TRUE(step && !step->write);
  lease.Seen({{"a", 10, 5}, 7}, 1930 * kMs);
  step = lease.Next(1930 * kMs);
  ASSERT_TRUE(step && step->write && step->revision == 7);
  lease.Wrote(true, 8, 1940 * kMs);
  EXPECT_EQ(lease.state(2900 * kMs), Leadership::State::kLeads);
}

}  // namespace
}  // namespace c4::c4p
