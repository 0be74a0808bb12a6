// The scheduler alone, on paths that are simulated: each takes so long for a byte, one chunk after the other,
// and its acknowledgement comes back after a while. Time is the simulation's.
#include "ccl/transport/scheduler.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

namespace c4 {
namespace {

constexpr uint64_t kSecondNs = 1000000000;
constexpr size_t kChunk = 131072;
constexpr size_t kWindow = 524288;

struct Path {
  double ns_per_byte = 1;  // 1 is 8 Gbit/s
  uint64_t delay_ns = 20000;
  uint64_t late_ns = 0;  // up to so much later an acknowledgement is heard, at random
};

class Simulation {
 public:
  Simulation(std::vector<Path> wanted, size_t window)
      : paths(std::move(wanted)),
        scheduler(paths.size(), window),
        flights_(paths.size()),
        free_ns_(paths.size()),
        chunks(paths.size()),
        bytes(paths.size()),
        window_(window) {}

  // With always something to send, up to that moment; `size` gives the next chunk's.
  template <typename Size>
  void Run(uint64_t until_ns, Size size) {
    while (now_ns < until_ns) {
      for (;;) {
        if (next_bytes_ == 0) next_bytes_ = size();
        const int pick = scheduler.Pick(next_bytes_, now_ns);
        if (pick == QpScheduler::kNone) break;
        Post(static_cast<size_t>(pick), std::exchange(next_bytes_, 0));
      }
      Deliver();
    }
  }
  void RunBusy(uint64_t until_ns) {
    Run(until_ns, [] { return kChunk; });
  }
  uint64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }
  void Forget() {
    std::fill(chunks.begin(), chunks.end(), 0);
    std::fill(bytes.begin(), bytes.end(), 0);
    longest_silence_ns = 0;
  }

  std::vector<Path> paths;
  QpScheduler scheduler;

 private:
  struct Flight {
    size_t bytes;
    uint64_t posted_ns;
    uint64_t done_ns;
  };

  void Post(size_t i, size_t count) {
    std::deque<Flight>& flight = flights_[i];
    size_t under_way = count;
    for (const Flight& chunk : flight) under_way += chunk.bytes;
    EXPECT_TRUE(flight.empty() || under_way <= window_) << under_way << " bytes on " << i;
    scheduler.Posted(static_cast<int>(i), count, now_ns);
    free_ns_[i] = std::max(free_ns_[i], now_ns) +
                  static_cast<uint64_t>(static_cast<double>(count) * paths[i].ns_per_byte);
    uint64_t done_ns = free_ns_[i] + paths[i].delay_ns;
    if (paths[i].late_ns != 0) done_ns += random_() % paths[i].late_ns;
    if (!flight.empty()) done_ns = std::max(done_ns, flight.back().done_ns + 1);
    flight.push_back({count, now_ns, done_ns});
    longest_silence_ns = std::max(longest_silence_ns, now_ns - std::exchange(last_post_ns, now_ns));
    ++chunks[i];
    bytes[i] += count;
  }
  // The next acknowledgement of all. There has to be one: with work to do and nothing under way, Pick gives a
  // place.
  void Deliver() {
    size_t next = flights_.size();
    for (size_t i = 0; i < flights_.size(); ++i) {
      if (flights_[i].empty()) continue;
      if (next == flights_.size() || flights_[i].front().done_ns < flights_[next].front().done_ns) next = i;
    }
    ASSERT_LT(next, flights_.size()) << "there is work, nothing is under way, and nothing is posted";
    const Flight chunk = flights_[next].front();
    flights_[next].pop_front();
    now_ns = std::max(now_ns, chunk.done_ns);
    scheduler.Completed(static_cast<int>(next), 1, chunk.bytes, chunk.posted_ns, now_ns);
  }

  std::vector<std::deque<Flight>> flights_;
  std::vector<uint64_t> free_ns_;
  size_t next_bytes_ = 0;
  std::mt19937 random_{1};

 public:
  std::vector<uint64_t> chunks;
  std::vector<uint64_t> bytes;
  uint64_t now_ns = 50 * kSecondNs;  // a clock that did not begin with the connection
  uint64_t last_post_ns = now_ns;
  uint64_t longest_silence_ns = 0;

 private:
  const size_t window_;
};

TEST(Scheduler, EqualPathsShareEvenly) {
  for (const size_t n : {1, 2, 3, 4, 8}) {
    Simulation simulation(std::vector<Path>(n), kWindow);
    simulation.RunBusy(simulation.now_ns + kSecondNs);
    const auto [least, most] = std::minmax_element(simulation.chunks.begin(), simulation.chunks.end());
    EXPECT_LE(*most - *least, 2u) << n;
    // Each path carries what it can: window and delay allow it.
    EXPECT_GT(simulation.total(), n * kSecondNs * 97 / 100) << n;
  }
}

// A completion that follows a late one is no sign of a fast path: the others would count as slow beside it.
TEST(Scheduler, NewsThatComesLateLeavesTheSharesEven) {
  for (const uint64_t late_ns : {100000, 200000, 300000}) {
    SCOPED_TRACE(late_ns);
    Simulation simulation(std::vector<Path>(4, {.late_ns = late_ns}), kWindow);
    simulation.RunBusy(simulation.now_ns + kSecondNs);
    const auto [least, most] = std::minmax_element(simulation.chunks.begin(), simulation.chunks.end());
    EXPECT_LE(*most - *least, *most / 20);
    EXPECT_GT(simulation.total(), 4 * kSecondNs * 95 / 100);
  }
}

// Chunks of any size on paths of any speed: the window holds (checked at each post), somebody always works,
// and what goes through is most of what the paths could carry.
TEST(Scheduler, NeverIdleAndNeverBeyondTheWindow) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::vector<Path> paths(1 + random() % 6);
    double possible = 0;
    for (Path& path : paths) {
      path.ns_per_byte = 0.5 + static_cast<double>(random() % 16) / 4.0;
      path.delay_ns = 1000 + random() % 30000;
      possible += 1 / path.ns_per_byte;
    }
    Simulation simulation(paths, kWindow);
    simulation.Run(simulation.now_ns + kSecondNs, [&] { return 1 + random() % kChunk; });
    const double carried = static_cast<double>(simulation.total()) / kSecondNs;
    EXPECT_GT(carried, 0.8 * possible) << carried << " of " << possible << " bytes per ns";
  }
}

TEST(Scheduler, AChunkBeyondTheWindowGoesAlone) {
  QpScheduler scheduler(2, 1000);
  const uint64_t now = kSecondNs * 9;
  const int first = scheduler.Pick(5000, now);
  ASSERT_NE(first, QpScheduler::kNone);
  scheduler.Posted(first, 5000, now);
  const int second = scheduler.Pick(5000, now);
  ASSERT_EQ(second, 1 - first);
  scheduler.Posted(second, 5000, now);
  EXPECT_EQ(scheduler.Pick(1, now), QpScheduler::kNone);
  scheduler.Completed(first, 1, 5000, now, now + 100);
  EXPECT_EQ(scheduler.Pick(5000, now + 100), first);
}

TEST(Scheduler, TheOneThatIsDoneFirstIsTaken) {
  QpScheduler scheduler(3, 1 << 30);
  uint64_t now = kSecondNs * 9;
  const double costs[] = {1.0, 2.0, 10.0};  // the second is not clearly slower, and counts as the first
  for (int i = 0; i < 3; ++i) {
    scheduler.Posted(i, kChunk, now);
    scheduler.Completed(i, 1, kChunk, now, now + static_cast<uint64_t>(costs[i] * kChunk));
    EXPECT_NEAR(scheduler.cost(i), costs[i], 0.01);
  }
  now += kSecondNs / 100;
  // Shares as the speeds: 10 to 10 to 1.
  const double counted[] = {1.0, 1.0, 10.0};
  int picks[3] = {};
  for (int i = 0; i < 84; ++i) {
    const int pick = scheduler.Pick(kChunk, now);
    ASSERT_NE(pick, QpScheduler::kNone);
    for (int j = 0; j < 3; ++j) {
      const auto finish = [&](int k) {
        return static_cast<double>(scheduler.in_flight_bytes(k) + kChunk) * counted[k];
      };
      EXPECT_LE(finish(pick), finish(j) * 1.02) << "chunk " << i;
    }
    ++picks[pick];
    scheduler.Posted(pick, kChunk, now);
  }
  EXPECT_NEAR(picks[0], 40, 2);
  EXPECT_NEAR(picks[1], 40, 2);
  EXPECT_NEAR(picks[2], 4, 1);
}

TEST(Scheduler, ASlowPathGetsAProbeASecondAndLittleMore) {
  for (const size_t ill : {0, 1, 3}) {
    std::vector<Path> paths(4);
    paths[ill].ns_per_byte = 200;
    Simulation simulation(paths, kWindow);
    simulation.RunBusy(simulation.now_ns + 3 * kSecondNs);  // until it has been found out
    simulation.Forget();
    const uint64_t begin = simulation.now_ns;
    simulation.RunBusy(begin + 10 * kSecondNs);
    EXPECT_GE(simulation.chunks[ill], 4 * 9u);
    EXPECT_LE(simulation.chunks[ill], 4 * 12u);
    EXPECT_GT(simulation.total(), 3 * 10 * kSecondNs * 95 / 100) << "the others carry on";
    EXPECT_LT(simulation.longest_silence_ns, kSecondNs / 100);
  }
}

TEST(Scheduler, APathThatHasBeenSlowComesBack) {
  std::vector<Path> paths(4);
  Simulation simulation(paths, kWindow);
  simulation.RunBusy(simulation.now_ns + kSecondNs);
  simulation.paths[2].ns_per_byte = 40;
  simulation.RunBusy(simulation.now_ns + 5 * kSecondNs);
  simulation.Forget();
  simulation.RunBusy(simulation.now_ns + 5 * kSecondNs);
  EXPECT_LE(simulation.chunks[2], 4 * 7u) << "found out";
  simulation.paths[2].ns_per_byte = 1;
  simulation.RunBusy(simulation.now_ns + 15 * kSecondNs);
  simulation.Forget();
  simulation.RunBusy(simulation.now_ns + 2 * kSecondNs);
  const uint64_t fair = simulation.total() / 4;
  EXPECT_GT(simulation.bytes[2], fair * 9 / 10) << "back at its share within 15 s";
}

TEST(Scheduler, APathThatNeverAnswersHoldsOnlyItsWindow) {
  std::vector<Path> paths(4);
  paths[1].ns_per_byte = 1e12;
  Simulation simulation(paths, kWindow);
  simulation.RunBusy(simulation.now_ns + 3 * kSecondNs);
  EXPECT_LE(simulation.bytes[1], kWindow);
  EXPECT_GT(simulation.total(), 3 * 3 * kSecondNs * 95 / 100);
}

// After a pause everything may have changed: each path is tried again.
TEST(Scheduler, AfterAPauseEachPathIsTried) {
  std::vector<Path> paths(4);
  paths[3].ns_per_byte = 50;
  Simulation simulation(paths, kWindow);
  simulation.RunBusy(simulation.now_ns + kSecondNs);
  simulation.now_ns += 20 * kSecondNs;
  simulation.paths[3].ns_per_byte = 1;
  simulation.Forget();
  simulation.RunBusy(simulation.now_ns + kSecondNs / 10);
  for (const uint64_t chunks : simulation.chunks) EXPECT_GE(chunks, 1u);
}

}  // namespace
}  // namespace c4
