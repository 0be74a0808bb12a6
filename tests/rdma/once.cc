// Whether a device delivers once and in order what was posted once (main.cc): bare queue pairs, without
// frames, epochs and descriptors. Each write carries its number as its immediate; nothing is ever posted
// again. A device that keeps the promise of a reliable connection gives the receiver 0, 1, 2 and so on.
#include <cstdio>
#include <poll.h>

#include "ccl/base/clock.h"
#include "tests/rdma/modes.h"

namespace c4::rdma_test {
namespace {

constexpr uint32_t kSaid = 8;  // lines about what is wrong, of a queue pair
constexpr uint64_t kSilentNs = 3000000000;

struct OnceEnd {
  std::unique_ptr<verbs::RcQueuePair> pair;
  uint32_t next = 0;       // to be posted, or expected
  uint32_t completed = 0;  // of the sender's requests, in success
  uint32_t doubled = 0;
  uint32_t skipped = 0;
  uint32_t cut = 0;  // of another length
  uint32_t flushed = 0;
  int status = verbs::abi::kSuccess;
};

struct Shape {
  uint32_t bytes;
  uint32_t window;  // requests of a queue pair that are under way
  uint32_t count;   // of a queue pair
};

void Note(const OnceEnd& end, const verbs::RcQueuePair::Completed& one) {
  if (end.doubled + end.skipped + end.cut > kSaid) return;
  printf("queue pair %u: write %u of %u bytes came where %u was expected\n", end.pair->number(),
         one.immediate, one.bytes, end.next);
}

void TakeArrival(const verbs::RcQueuePair::Completed& one, const Shape& shape, OnceEnd* end) {
  if (one.bytes != shape.bytes) {
    ++end->cut;
    Note(*end, one);
  }
  if (one.immediate == end->next) {
    ++end->next;
  } else if (one.immediate < end->next) {
    ++end->doubled;
    Note(*end, one);
  } else {
    end->skipped += one.immediate - end->next;
    Note(*end, one);
    end->next = one.immediate + 1;
  }
}

// All completions that are there; true when there were some.
template <typename Take>
bool Drain(OnceEnd* end, const Take& take) {
  std::vector<verbs::RcQueuePair::Completed> completed;
  bool any = false;
  for (;;) {
    DieUnless(end->pair->Poll(&completed));
    if (completed.empty()) return any;
    any = true;
    for (const auto& one : completed) {
      if (one.status == verbs::abi::kSuccess) {
        take(one);
      } else {
        ++end->flushed;
        if (end->status == verbs::abi::kSuccess) end->status = one.status;
      }
    }
  }
}

void Nap(const Context& context, const std::vector<OnceEnd>& ends) {
  std::vector<pollfd> entries = {{context.oob->fd(), POLLIN, 0}};
  for (const OnceEnd& end : ends) {
    DieUnless(end.pair->Arm());
    entries.push_back({end.pair->fd(), POLLIN, 0});
  }
  poll(entries.data(), entries.size(), 1);
}

void SendOnce(const Context& context, const Shape& shape, std::vector<OnceEnd>* ends) {
  std::vector<char> data(shape.bytes, 'x');
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(data.data(), data.size(), false, &key));
  const Message to = context.oob->Wait(Word::kGo);
  const uint64_t begin_ns = MonotonicNs();
  uint64_t moved_ns = begin_ns;
  for (bool over = false; !over && MonotonicNs() - moved_ns < kSilentNs;) {
    over = true;
    bool moved = false;
    for (OnceEnd& end : *ends) {
      moved |= Drain(&end, [&](const auto&) { ++end.completed; });
      if (end.status != verbs::abi::kSuccess) continue;
      while (end.next < shape.count && end.next < end.completed + shape.window) {
        verbs::RcQueuePair::Write write;
        write.data = data.data();
        write.bytes = shape.bytes;
        write.local_key = key.local_key();
        write.remote_address = to.number;
        write.remote_key = to.queue_pair;
        write.immediate = end.next;
        bool posted = false;
        DieUnless(end.pair->PostWrite(write, &posted));
        if (!posted) break;
        ++end.next;
      }
      over = over && end.completed == shape.count;
    }
    if (moved) moved_ns = MonotonicNs();
    if (!moved) Nap(context, *ends);
  }
  uint64_t posted = 0;
  uint64_t completed = 0;
  for (const OnceEnd& end : *ends) {
    posted += end.next;
    completed += end.completed;
    if (end.status != verbs::abi::kSuccess) {
      printf("queue pair %u: status %d (%s) after %u of %u\n", end.pair->number(), end.status,
             verbs::StatusText(end.status), end.completed, end.next);
    }
  }
  printf("posted %llu completed %llu seconds %.2f\n", static_cast<unsigned long long>(posted),
         static_cast<unsigned long long>(completed), static_cast<double>(MonotonicNs() - begin_ns) / 1e9);
  context.oob->Say({Word::kDone, 0, 0, {}});
}

void ReceiveOnce(const Context& context, const Shape& shape, uint32_t receives, std::vector<OnceEnd>* ends) {
  std::vector<char> data(shape.bytes);
  verbs::RegistrationUse key;
  DieUnless(context.port.device->memory().Acquire(data.data(), data.size(), false, &key));
  for (OnceEnd& end : *ends) {
    for (uint32_t i = 0; i < receives; ++i)
      DieUnless(end.pair->PostReceive(i, data.data(), 0, key.local_key()));
  }
  context.oob->Say({Word::kGo, key.remote_key(), reinterpret_cast<uint64_t>(data.data()), {}});
  uint64_t arrived = 0;
  for (bool done = false; !done;) {
    Message message;
    done = context.oob->Hear(&message);  // one more look after the sender's last word
    bool moved = false;
    for (OnceEnd& end : *ends) {
      moved |= Drain(&end, [&](const verbs::RcQueuePair::Completed& one) {
        ++arrived;
        TakeArrival(one, shape, &end);
        DieUnless(end.pair->PostReceive(one.id, data.data(), 0, key.local_key()));
      });
    }
    if (!moved && !done) Nap(context, *ends);
  }
  OnceEnd all;
  for (const OnceEnd& end : *ends) {
    all.doubled += end.doubled;
    all.skipped += end.skipped;
    all.cut += end.cut;
    if (end.status != verbs::abi::kSuccess) {
      printf("queue pair %u: status %d (%s) after %u\n", end.pair->number(), end.status,
             verbs::StatusText(end.status), end.next);
    }
  }
  printf("arrived %llu doubled %u skipped %u cut %u\n", static_cast<unsigned long long>(arrived), all.doubled,
         all.skipped, all.cut);
}

}  // namespace

void Once(const Context& context, const Options& options, bool sends) {
  const Shape shape = {static_cast<uint32_t>(options.Number("bytes", 65536)),
                       static_cast<uint32_t>(options.Number("window", 64)),
                       static_cast<uint32_t>(options.Number("count", 200))};
  const auto receives = static_cast<uint32_t>(options.Number("receives", 3ull * shape.window));
  std::vector<OnceEnd> ends(options.Number("queue-pairs", 1));
  for (OnceEnd& end : ends) {
    DieUnless(
        verbs::RcQueuePair::Create(context.port, context.settings, {shape.window, receives, 0}, &end.pair));
    context.oob->Say({Word::kEnd, 0, 0, end.pair->end()});
  }
  for (OnceEnd& end : ends) DieUnless(end.pair->Connect(context.oob->Wait(Word::kEnd).end));
  // Nothing is written before both ends are connected: the receiver's word to go comes behind its ends.
  if (sends) {
    SendOnce(context, shape, &ends);
  } else {
    ReceiveOnce(context, shape, receives, &ends);
  }
}

}  // namespace c4::rdma_test
