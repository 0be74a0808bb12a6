#include "tests/rdma/modes.h"

#include <cstdio>
#include <poll.h>

#include "ccl/base/clock.h"

namespace c4::rdma_test {
namespace {

void Play(const Context& context, const Plan& plan, bool sends, Tally* tally) {
  if (sends) {
    RunSender(context, plan, tally);
    // The receiver may have said something about queue pairs that were in use no more.
    Message message;
    do {
      while (!context.oob->Hear(&message)) {
        pollfd entry{context.oob->fd(), POLLIN, 0};
        if (poll(&entry, 1, 60000) == 0) Die("the receiver says nothing");
      }
    } while (message.word != Word::kDone);
  } else {
    RunReceiver(context, plan, tally);
    context.oob->Say({Word::kDone, 0, 0, {}});
  }
}

void Print(const Tally& tally, double seconds) {
  printf("chunks %llu bytes %llu epochs %llu resent %llu spared %llu longest_gap_ms %.1f seconds %.2f",
         static_cast<unsigned long long>(tally.chunks), static_cast<unsigned long long>(tally.bytes),
         static_cast<unsigned long long>(tally.epochs), static_cast<unsigned long long>(tally.resent),
         static_cast<unsigned long long>(tally.spared), static_cast<double>(tally.longest_gap_ns) / 1e6,
         seconds);
  for (const int status : tally.statuses) printf(" status %d (%s)", status, verbs::StatusText(status));
  printf("\n");
}

double SecondsSince(uint64_t begin_ns) {
  return static_cast<double>(MonotonicNs() - begin_ns) / 1e9;
}

}  // namespace

void Histories(const Context& context, const Options& options, bool sends) {
  const uint64_t first = options.Number("first", 1);
  const uint64_t count = options.Number("count", 100);
  const uint64_t begin_ns = MonotonicNs();
  Tally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    // A line before each would cost more than the history; the last one is what a failure is about.
    if (seed % 50 == 0) printf("history %llu\n", static_cast<unsigned long long>(seed));
    Play(context, Plan::Random(seed), sends, &tally);
  }
  printf("histories %llu\n", static_cast<unsigned long long>(count));
  Print(tally, SecondsSince(begin_ns));
}

void Stream(const Context& context, const Options& options, bool sends) {
  const uint64_t messages = options.Number("messages", 100);
  Plan plan = Plan::Stream(options.Number("seed", 1), options.Number("queue-pairs", 2),
                           static_cast<uint32_t>(options.Number("chunk", 16384)), messages,
                           options.Number("bytes", 100000));
  const auto suffer = [&](const char* at, const char* command) {
    if (options.Text(command, "").empty()) return;
    Plan::Fault fault;
    fault.at = options.Number(at, 0);
    fault.kind = Plan::Fault::kCommand;
    fault.command = options.Text(command, "");
    plan.faults.push_back(fault);
  };
  suffer("at", "command");
  suffer("then", "command2");
  const uint64_t begin_ns = MonotonicNs();
  Tally tally;
  Play(context, plan, sends, &tally);
  Print(tally, SecondsSince(begin_ns));
}

}  // namespace c4::rdma_test
