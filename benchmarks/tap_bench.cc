// tap_bench [ROUNDS]: what the tap costs a post and a completion, over the untouched call of a provider that
// does next to nothing: a double of a device's posting and polling, called through its own table once as the
// provider made it and once with the tap in between. Rounds of both alternate in one run; the medians of the
// rounds and of the differences of each pair are printed, in ns a call, and (`calm`) the difference of the
// tenth percentiles, which other load disturbs less. Whose the queue pairs are is known, as it is in a job
// from its first steps on.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ccl/base/clock.h"
#include "ccl/tap/verbs_calls.h"

namespace {

namespace abi = c4::verbs::abi;
using c4::tap::InPlaceOf;
using std::chrono::steady_clock;

constexpr int kBurst = 64;     // posts, and then completions, at a time
constexpr int kBursts = 2000;  // a round
constexpr uint32_t kDepth = 128;

// A queue pair whose requests complete when they are polled.
struct Pair : abi::QueuePair {
  uint64_t ids[kDepth];
  uint64_t posted;
  uint64_t polled;
};

struct Queue : abi::CompletionQueue {
  std::vector<Pair*> pairs;  // in the order in which they were posted to
  size_t next = 0;
};

int Post(abi::QueuePair* queue_pair, abi::SendRequest* request, abi::SendRequest** /*failed*/) {
  auto* const pair = static_cast<Pair*>(queue_pair);
  for (; request != nullptr; request = request->next) pair->ids[pair->posted++ % kDepth] = request->id;
  return 0;
}

int Poll(abi::CompletionQueue* completions, int count, abi::Completion* done) {
  auto* const queue = static_cast<Queue*>(completions);
  int taken = 0;
  for (; taken < count && queue->next < queue->pairs.size(); ++taken) {
    Pair* const pair = queue->pairs[queue->next++];
    done[taken].id = pair->ids[pair->polled++ % kDepth];
    done[taken].status = abi::kSuccess;
    done[taken].opcode = 0;
    done[taken].qp_number = pair->number;
  }
  return taken;
}

abi::Context* Open(abi::Device* device) {
  auto* const context = new abi::Context{};
  context->device = device;
  context->operations.post_send = &Post;
  context->operations.poll_completions = &Poll;
  return context;
}

uint32_t next_number = 17;

abi::QueuePair* Create(abi::ProtectionDomain* domain, abi::QpInit* /*init*/) {
  auto* const pair = new Pair{};
  pair->context = domain->context;
  pair->number = next_number += 3;
  return pair;
}

template <typename Function>
Function Tapped(const char* symbol, Function real) {
  return reinterpret_cast<Function>(InPlaceOf(symbol, reinterpret_cast<void*>(real)));
}

struct Client {
  Client(bool tapped, int pair_count, c4::ObservedCommunicator* communicator) {
    context = tapped ? Tapped("ibv_open_device", &Open)(&device) : Open(&device);
    domain.context = context;
    queue.context = context;
    const auto create = tapped ? Tapped("ibv_create_qp", &Create) : &Create;
    for (int i = 0; i < pair_count; ++i) {
      abi::QpInit init{};
      init.capacity = {kDepth, kDepth, 1, 1, 0};
      pairs.push_back(static_cast<Pair*>(create(&domain, &init)));
      if (!tapped) continue;
      c4::tap::WatchedQueuePair* const watched = c4::tap::QueuePairs().Find(pairs.back());
      if (watched == nullptr || !watched->AttributeTo(communicator, i)) abort();
    }
  }
  // {ns a post, ns a completion}; `at_once` completions are polled together.
  std::pair<double, double> Round(int at_once) {
    double post_ns = 0;
    double poll_ns = 0;
    abi::Piece piece{1, 65536, 1};
    abi::SendRequest request{};
    request.pieces = &piece;
    request.piece_count = 1;
    request.flags = abi::kSignaled;
    std::vector<abi::Completion> done(static_cast<size_t>(at_once));
    for (int burst = 0; burst < kBursts; ++burst) {
      queue.pairs.clear();
      queue.next = 0;
      for (int i = 0; i < kBurst; ++i) queue.pairs.push_back(pairs[at = (at + 7) % pairs.size()]);
      const auto began = steady_clock::now();
      for (Pair* const pair : queue.pairs) {
        ++request.id;
        abi::SendRequest* failed = nullptr;
        if (context->operations.post_send(pair, &request, &failed) != 0) abort();
      }
      const auto posted = steady_clock::now();
      int polled = 0;
      while (polled < kBurst) polled += context->operations.poll_completions(&queue, at_once, done.data());
      const auto ended = steady_clock::now();
      post_ns += std::chrono::duration<double, std::nano>(posted - began).count();
      poll_ns += std::chrono::duration<double, std::nano>(ended - posted).count();
    }
    return {post_ns / kBurst / kBursts, poll_ns / kBurst / kBursts};
  }

  abi::Device device{};
  abi::Context* context = nullptr;
  abi::ProtectionDomain domain{};
  Queue queue{};
  std::vector<Pair*> pairs;
  size_t at = 0;
};

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size()))];
}
double Median(const std::vector<double>& values) {
  return Quantile(values, 0.5);
}
// What else runs on the machine only makes rounds longer.
double Undisturbed(const std::vector<double>& plain, const std::vector<double>& tapped) {
  return Quantile(tapped, 0.1) - Quantile(plain, 0.1);
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? atoi(words[1]) : 15;
  if (rounds < 1) {
    fprintf(stderr, "usage: tap_bench [ROUNDS]\n");
    return 2;
  }
  setenv("C4_RUN_DIR", "/tmp/c4-tap-bench", 0);
  setenv("C4_MAX_QUEUE_PAIRS", "16384", 0);
  c4::ObservedCommunicator* const communicator =
      c4::ObservedCommunicators::Get().Open({.id = 1, .rank = 0, .rank_count = 4097});
  printf("%12s %8s %10s %10s %8s %8s %12s %10s %8s %8s\n", "queue pairs", "at once", "post", "tapped", "more",
         "calm", "completion", "tapped", "more", "calm");
  for (const int pairs : {1, 64, 4096}) {
    Client plain(false, pairs, nullptr);
    Client tapped(true, pairs, communicator);
    for (const int at_once : {1, 16}) {
      std::vector<double> columns[6];
      for (int i = 0; i < rounds; ++i) {
        // Each goes first in turn.
        std::pair<double, double> one = i % 2 == 0 ? plain.Round(at_once) : tapped.Round(at_once);
        std::pair<double, double> other = i % 2 == 0 ? tapped.Round(at_once) : plain.Round(at_once);
        if (i % 2 != 0) std::swap(one, other);
        const double row[] = {one.first,  other.first,  other.first - one.first,
                              one.second, other.second, other.second - one.second};
        for (size_t c = 0; c < 6; ++c) columns[c].push_back(row[c]);
      }
      printf("%12d %8d %10.1f %10.1f %8.1f %8.1f %12.1f %10.1f %8.1f %8.1f\n", pairs, at_once,
             Median(columns[0]), Median(columns[1]), Median(columns[2]), Undisturbed(columns[0], columns[1]),
             Median(columns[3]), Median(columns[4]), Median(columns[5]), Undisturbed(columns[3], columns[4]));
    }
  }
  return 0;
}
