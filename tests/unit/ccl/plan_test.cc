// Runs the plans of all ranks on symbols: the value at a place of a buffer is the set of the inputs that are
// in it. Messages between two ranks on a channel go in order, as the executor sends them.
#include "ccl/engine/host/plan.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace c4::host {
namespace {

// Which inputs are in a value: of which ranks, and from which block and part of their buffers.
struct Value {
  uint64_t ranks = 0;
  int block = -1;
  int part = -1;
  bool operator==(const Value&) const = default;
};

struct Case {
  wire::Function function;
  Algorithm algorithm;
  std::vector<uint64_t> hosts;
  int root = 0;
  int channels = 1;
};

bool Rooted(wire::Function function) {
  return function == wire::kBroadcast || function == wire::kReduce || function == wire::kGather ||
         function == wire::kScatter;
}
bool Reduces(wire::Function function) {
  return function == wire::kAllReduce || function == wire::kReduce || function == wire::kReduceScatter;
}

// A queue that costs nothing while it is empty: there are many.
template <typename T>
class Fifo {
 public:
  bool empty() const { return next_ == items_.size(); }
  const T& front() const { return items_[next_]; }
  void push_back(const T& item) { items_.push_back(item); }
  void pop_front() { ++next_; }

 private:
  std::vector<T> items_;
  size_t next_ = 0;
};

// Plays the plans of all ranks. Where the order of events is free, the seed chooses.
class Play {
 public:
  Play(const Case& c, unsigned seed) : case_(c), layout_(c.hosts), n_(layout_.rank_count), random_(seed) {
    const auto links = static_cast<size_t>(c.channels * n_ * n_);
    links_.resize(links);
    takes_.resize(links);
    gives_.resize(links);
    for (int rank = 0; rank < n_; ++rank) {
      plans_.push_back(MakePlan(c.algorithm, c.function, layout_, rank, c.root, c.channels));
      done_.emplace_back(plans_.back().steps.size(), false);
      output_.emplace_back();
      first_.push_back(0);
      for (size_t s = 0; s < plans_.back().steps.size(); ++s) {
        const Step& step = plans_.back().steps[s];
        for (const int peer : step.from) takes_[Link(peer, rank, step.channel)].push_back(s);
        for (const int peer : step.to) gives_[Link(rank, peer, step.channel)].push_back(s);
      }
    }
  }

  // What went wrong; empty when nothing did.
  std::string Run() {
    for (int rank = 0; rank < n_; ++rank) {
      if (plans_[rank].parts != plans_[0].parts) return "ranks cut blocks differently";
    }
    for (bool moved = true; moved;) {
      moved = false;
      random_ = random_ * 1664525u + 1013904223u;
      for (int i = 0; i < n_; ++i) {
        const int rank =
            static_cast<int>((static_cast<unsigned>(i) + (random_ >> 8)) % static_cast<unsigned>(n_));
        for (size_t s = first_[rank]; s < plans_[rank].steps.size(); ++s) {
          if (s == first_[rank] && done_[rank][s]) ++first_[rank];
          if (done_[rank][s] || !CanRun(rank, s)) continue;
          if (std::string fault = RunStep(rank, s); !fault.empty()) return fault;
          done_[rank][s] = moved = true;
        }
      }
    }
    for (int rank = 0; rank < n_; ++rank) {
      for (size_t s = 0; s < done_[rank].size(); ++s) {
        if (!done_[rank][s])
          return "rank " + std::to_string(rank) + " waits for ever in step " + std::to_string(s);
      }
    }
    for (size_t link = 0; link < links_.size(); ++link) {
      if (!links_[link].empty()) {
        return "a message to rank " + std::to_string(link % static_cast<size_t>(n_)) + " was not taken";
      }
    }
    return CheckOutputs();
  }

 private:
  size_t Link(int from, int to, int channel) const {
    return static_cast<size_t>((channel * n_ + from) * n_ + to);
  }

  // All of its messages are there, and no earlier step of this rank is to take one of them or to send before
  // it.
  bool CanRun(int rank, size_t s) {
    const Step& step = plans_[rank].steps[s];
    for (const int peer : step.from) {
      if (links_[Link(peer, rank, step.channel)].empty() ||
          takes_[Link(peer, rank, step.channel)].front() != s)
        return false;
    }
    for (const int peer : step.to) {
      if (gives_[Link(rank, peer, step.channel)].front() != s) return false;
    }
    return true;
  }

  std::string RunStep(int rank, size_t s) {
    const Step& step = plans_[rank].steps[s];
    const std::string where = "rank " + std::to_string(rank) + " step " + std::to_string(s) + ": ";
    std::optional<Value> value;
    std::string fault;
    const auto take = [&](const Value& more) {
      if (!value.has_value()) {
        value = more;
      } else if (!Reduces(case_.function)) {
        fault = where + "reduces";
      } else if ((value->ranks & more.ranks) != 0) {
        fault = where + "an input counted twice";
      } else if (value->block != more.block || value->part != more.part) {
        fault = where + "reduces different places";
      } else {
        value->ranks |= more.ranks;
      }
    };
    int last = -1;
    for (const int peer : step.from) {
      if (peer <= last || peer == rank) return where + "sources are not in order";
      last = peer;
      Fifo<Value>& link = links_[Link(peer, rank, step.channel)];
      take(link.front());
      link.pop_front();
      takes_[Link(peer, rank, step.channel)].pop_front();
    }
    if (step.operand.buffer == Buffer::kOutput) return where + "reads what another step stored";
    if (step.operand.buffer == Buffer::kInput) {
      take({uint64_t{1} << rank, step.operand.block, step.operand.part});
      int below = 0;
      if (plans_[static_cast<size_t>(rank)].in_rank_order) {
        for (const int peer : step.from) below += peer < rank ? 1 : 0;
      }
      if (step.own_place != below) return where + "its own operand is not in the order of ranks";
    }
    if (!fault.empty()) return fault;
    if (!value.has_value()) return where + "makes something of nothing";
    const uint64_t all = n_ == 64 ? ~uint64_t{0} : (uint64_t{1} << n_) - 1;
    if (Reduces(case_.function) && step.operand.buffer != Buffer::kNone &&
        step.store.buffer != Buffer::kNone && step.whole != (value->ranks == all)) {
      return where + "does not know whether its result is whole";
    }
    if (step.store.buffer == Buffer::kInput) return where + "stores into the input";
    if (step.store.buffer == Buffer::kOutput) {
      // What is passed on may be stored where the result will come to, never the other way round.
      const auto [it, is_new] = output_[rank].emplace(std::pair(step.store.block, step.store.part), *value);
      if (!is_new && (it->second.ranks & ~value->ranks) != 0) return where + "stores over a result";
      it->second = *value;
    } else if (!step.from.empty() && !plans_[rank].stages) {
      return where + "passes on what is stored nowhere, and does not say so";
    }
    for (const int peer : step.to) {
      if (peer == rank) return where + "sends to itself";
      links_[Link(rank, peer, step.channel)].push_back(*value);
      gives_[Link(rank, peer, step.channel)].pop_front();
    }
    return {};
  }

  std::string CheckOutputs() const {
    const uint64_t all = n_ == 64 ? ~uint64_t{0} : (uint64_t{1} << n_) - 1;
    const wire::Function f = case_.function;
    for (int rank = 0; rank < n_; ++rank) {
      const std::string where = "output of rank " + std::to_string(rank);
      const bool has = !(f == wire::kReduce || f == wire::kGather) || rank == case_.root;
      const bool blocks = f == wire::kAllGather || f == wire::kAlltoAll || f == wire::kGather;
      const size_t parts = n_ == 1 ? 1 : static_cast<size_t>(plans_[0].parts);
      const size_t wanted = !has ? 0 : (blocks ? static_cast<size_t>(n_) : 1) * parts;
      if (output_[rank].size() != wanted) return where + " has not all its places";
      for (const auto& [place, value] : output_[rank]) {
        const auto [block, part] = place;
        Value right{0, 0, part};
        switch (f) {
          case wire::kAllReduce:
          case wire::kReduce:
            right.ranks = all;
            break;
          case wire::kReduceScatter:
            right.ranks = all;
            right.block = rank;
            break;
          case wire::kBroadcast:
            right.ranks = uint64_t{1} << case_.root;
            break;
          case wire::kScatter:
            right.ranks = uint64_t{1} << case_.root;
            right.block = rank;
            break;
          case wire::kAlltoAll:
            right.block = rank;
            [[fallthrough]];
          default:
            right.ranks = uint64_t{1} << block;
        }
        if (!(value == right)) return where + " has a wrong value in block " + std::to_string(block);
      }
    }
    return {};
  }

  const Case& case_;
  const Layout layout_;
  const int n_;
  unsigned random_;
  std::vector<Plan> plans_;
  std::vector<std::vector<bool>> done_;
  std::vector<size_t> first_;  // all steps before it are done
  std::vector<std::map<std::pair<int, int>, Value>> output_;
  std::vector<Fifo<Value>> links_;
  std::vector<Fifo<size_t>> takes_;  // steps that are still to take from it, in order
  std::vector<Fifo<size_t>> gives_;
};

constexpr wire::Function kFunctions[] = {wire::kAllReduce, wire::kReduce,        wire::kBroadcast,
                                         wire::kAllGather, wire::kReduceScatter, wire::kAlltoAll,
                                         wire::kGather,    wire::kScatter};

// One host, one rank a host, and several ways of several ranks a host.
std::vector<std::vector<uint64_t>> Layouts(int n) {
  std::vector<std::vector<uint64_t>> layouts(2);
  for (int rank = 0; rank < n; ++rank) {
    layouts[0].push_back(7);
    layouts[1].push_back(static_cast<uint64_t>(100 - rank));
  }
  for (int hosts = 2; hosts < n; ++hosts) {
    if (n % hosts != 0 && hosts > 4) continue;
    std::vector<uint64_t> round;
    std::vector<uint64_t> blocks;
    for (int rank = 0; rank < n; ++rank) {
      round.push_back(static_cast<uint64_t>(rank % hosts));
      blocks.push_back(static_cast<uint64_t>(rank / ((n + hosts - 1) / hosts)));
    }
    layouts.push_back(std::move(round));
    layouts.push_back(std::move(blocks));
  }
  return layouts;
}

class PlanTest : public testing::TestWithParam<int> {};

TEST_P(PlanTest, EveryPlanOfEveryCollective) {
  const int n = GetParam();
  int played = 0;
  for (const std::vector<uint64_t>& hosts : Layouts(n)) {
    const Layout layout(hosts);
    for (const wire::Function function : kFunctions) {
      for (int a = 1; a < kAlgorithms; ++a) {
        const auto algorithm = static_cast<Algorithm>(a);
        if (!Exists(algorithm, function, layout)) continue;
        std::vector<int> roots = {n / 3};
        if (Rooted(function) && n < 10) {
          roots.clear();
          for (int root = 0; root < n; ++root) roots.push_back(root);
        }
        for (const int root : roots) {
          for (const int channels : n < 20 ? std::vector<int>{1, 3} : std::vector<int>{2}) {
            const Case c{function, algorithm, hosts, root, channels};
            ASSERT_EQ(Play(c, static_cast<unsigned>(n + root)).Run(), "")
                << AlgorithmName(algorithm) << " of function " << int{function} << ", " << n << " ranks on "
                << layout.hosts.size() << " hosts, root " << root << ", " << channels << " channels";
            ++played;
          }
        }
      }
    }
  }
  EXPECT_GE(played, 10);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStride = 9;  // symbols for 64 ranks take thirty times as long
#else
constexpr int kStride = 1;
#endif
INSTANTIATE_TEST_SUITE_P(UpTo64, PlanTest, testing::Range(1, 65, kStride));

TEST(Algorithms, HaveNames) {
  for (int i = 0; i < kAlgorithms; ++i) {
    Algorithm parsed = Algorithm::kAuto;
    EXPECT_TRUE(ParseAlgorithm(AlgorithmName(static_cast<Algorithm>(i)), &parsed));
    EXPECT_EQ(static_cast<int>(parsed), i);
  }
  Algorithm parsed = Algorithm::kTree;
  EXPECT_FALSE(ParseAlgorithm("rings", &parsed));
  EXPECT_EQ(parsed, Algorithm::kTree);
}

TEST(Choose, SmallMessagesGoInFewHopsAndLargeOnesInFewBytes) {
  const Costs costs;
  const Layout spread(std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Choose(wire::kAllReduce, spread, 8, costs), Algorithm::kTree);
  EXPECT_EQ(Choose(wire::kAllReduce, spread, size_t{1} << 30, costs), Algorithm::kRing);
  const Layout together(std::vector<uint64_t>(8, 1));
  EXPECT_EQ(Choose(wire::kAllReduce, together, 8, costs), Algorithm::kExchange);
  EXPECT_EQ(Choose(wire::kAllReduce, together, size_t{1} << 30, costs), Algorithm::kDirect);
  std::vector<uint64_t> eight_each;
  for (uint64_t rank = 0; rank < 64; ++rank) eight_each.push_back(rank / 8);
  const Layout hosts(eight_each);
  Costs wide;  // hosts whose memory is much faster than their network
  wide.local_byte_s = 1e-11;
  EXPECT_EQ(Choose(wire::kAllReduce, hosts, size_t{1} << 21, wide), Algorithm::kHierarchy);
  EXPECT_EQ(Choose(wire::kAlltoAll, hosts, size_t{1} << 30, costs), Algorithm::kDirect);
}

TEST(Layout, GroupsRanksByHost) {
  const Layout layout(std::vector<uint64_t>{9, 5, 9, 5, 5});
  EXPECT_EQ(layout.host, (std::vector<int>{0, 1, 0, 1, 1}));
  EXPECT_EQ(layout.place, (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(layout.ring, (std::vector<int>{0, 2, 1, 3, 4}));
  EXPECT_FALSE(layout.even());
  EXPECT_TRUE(Layout(std::vector<uint64_t>{1, 2, 2, 1}).even());
}

TEST(ChunkSpan, CoversEveryElementOnce) {
  for (const size_t count : {0, 1, 2, 7, 64, 1000, 1001}) {
    for (const int parts : {1, 2, 3, 7, 64}) {
      size_t at = 0;
      for (int part = 0; part < parts; ++part) {
        const Span span = ChunkSpan(count, parts, part);
        EXPECT_EQ(span.first, at);
        EXPECT_LE(span.count, count / static_cast<size_t>(parts) + 1);
        at += span.count;
      }
      EXPECT_EQ(at, count);
    }
    EXPECT_EQ(ChunkSpan(count, 5, kWhole).count, count);
  }
}

}  // namespace
}  // namespace c4::host
