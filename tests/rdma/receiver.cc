// The receiver of a history (transfer.h).
#include <algorithm>
#include <poll.h>

#include "ccl/base/clock.h"
#include "tests/rdma/transfer.h"

namespace c4::rdma_test {
namespace {

constexpr char kUnused = static_cast<char>(0xee);  // no message has such a byte

struct Receiving {
  std::unique_ptr<verbs::ReceiveEnd> end;
  uint64_t before = 0;  // chunks of earlier epochs
  bool fencing = false;
  bool said_lost = false;
  bool answered = false;
};

class Receiver final : private verbs::Arrivals {
 public:
  Receiver(const Context& context, const Plan& plan, Tally* tally)
      : context_(context), plan_(plan), tally_(tally), pairs_(plan.queue_pairs), slots_(plan.window) {
    uint64_t room = 1;
    for (const Plan::Item& item : plan.messages) {
      room = std::max(room, item.room);
      seen_.emplace_back(std::max<uint64_t>(1, (item.bytes + plan.chunk_bytes - 1) / plan.chunk_bytes));
    }
    for (Slot& slot : slots_) {
      slot.data.assign(room + 64, kUnused);  // a margin that nobody may touch
      DieUnless(context.port.device->memory().Acquire(slot.data.data(), room, false, &slot.registration));
    }
  }

  void Run() {
    bool done = false;
    // What the sender's device knows to have arrived may still be in our completion queues.
    for (uint64_t deadline_ns = UINT64_MAX; !done || oldest_ < plan_.messages.size();) {
      if (done && deadline_ns == UINT64_MAX) deadline_ns = MonotonicNs() + 2000000000u;
      if (MonotonicNs() > deadline_ns) Die("the sender is done and messages are missing");
      bool moved = false;
      context_.port.device->TakeEvents();
      for (size_t i = 0; i < pairs_.size(); ++i) Progress(i, &moved);
      Grant();
      done = done || Hear(&moved);
      if (!moved && !done) Sleep();
    }
    for (const Slot& slot : slots_) CheckUnused(slot, 0);
  }

 private:
  struct Slot {
    std::vector<char> data;
    verbs::RegistrationUse registration;
  };

  Slot& SlotOf(uint64_t message) { return slots_[message % slots_.size()]; }

  void Open(size_t i, const Message& from) {
    Receiving& pair = pairs_[i];
    if (pair.end != nullptr && !pair.fencing) Die("a second epoch came before the first was fenced");
    DieUnless(
        verbs::ReceiveEnd::Create(PresentPort(context_), context_.settings, plan_.chunk_bytes, &pair.end));
    pair.fencing = pair.said_lost = pair.answered = false;
    // What the sender has not settled yet is still to be described, also what has come here already.
    pair.end->Begin(from.number);
    for (uint64_t message = from.number; message < granted_; ++message) Describe(i, message);
    pair.end->Forget(oldest_);
    ConnectOrBreak(pair.end.get(), from.end);
    context_.oob->Say({Word::kEnd, static_cast<uint32_t>(i), 0, pair.end->queue_pair().end()});
  }

  void Describe(size_t i, uint64_t message) {
    Slot& slot = SlotOf(message);
    pairs_[i].end->Describe({reinterpret_cast<uint64_t>(slot.data.data()), plan_.messages[message].room,
                             slot.registration.remote_key(), static_cast<int32_t>(message)});
  }

  void Grant() {
    while (granted_ < plan_.messages.size() && granted_ < oldest_ + plan_.window) {
      for (size_t i = 0; i < pairs_.size(); ++i) {
        if (pairs_[i].end != nullptr) Describe(i, granted_);
      }
      ++granted_;
    }
  }

  void Progress(size_t i, bool* moved) {
    Receiving& pair = pairs_[i];
    if (pair.end == nullptr) return;
    DieUnless(pair.end->Progress(this, moved));
    pair.end->Forget(oldest_);
  }

  Result Arrived(const Chunk& chunk) override {
    if (chunk.message_bytes != plan_.messages.at(chunk.message).bytes)
      Die("a message came with another length");
    if (chunk.message < oldest_ || seen_[chunk.message].at(chunk.index)) Die("a chunk came twice");
    seen_[chunk.message][chunk.index] = true;
    ++tally_->chunks;
    tally_->bytes += chunk.bytes;
    while (oldest_ < granted_ &&
           std::all_of(seen_[oldest_].begin(), seen_[oldest_].end(), [](bool seen) { return seen; })) {
      Take(oldest_++);
    }
    return Ok();
  }

  // Looks at it, and has its buffer ready for the next one.
  void Take(uint64_t message) {
    Slot& slot = SlotOf(message);
    const uint64_t bytes = plan_.messages[message].bytes;
    for (uint64_t at = 0; at < bytes; ++at) {
      if (slot.data[at] != ByteOf(plan_.seed, message, at)) {
        Die("byte " + std::to_string(at) + " of message " + std::to_string(message) + " is wrong");
      }
    }
    CheckUnused(slot, bytes);
    std::fill(slot.data.begin(), slot.data.end(), kUnused);
    for (const Plan::Fault& fault : plan_.faults) {
      const Receiving& pair = pairs_[fault.queue_pair];
      if (fault.at == message && fault.kind == Plan::Fault::kReceiverBreaks && pair.end != nullptr) {
        DieUnless(pair.end->Break());
      }
    }
  }

  static void CheckUnused(const Slot& slot, uint64_t from) {
    if (!std::all_of(slot.data.begin() + static_cast<ptrdiff_t>(from), slot.data.end(),
                     [](char byte) { return byte == kUnused; })) {
      Die("bytes came where no message was expected");
    }
  }

  bool Hear(bool* moved) {
    Message message;
    bool done = false;
    while (!done && context_.oob->Hear(&message)) {
      *moved = true;
      if (message.word == Word::kEnd) {
        Open(message.queue_pair, message);
      } else if (message.word == Word::kFence) {
        Receiving& pair = pairs_.at(message.queue_pair);
        DieUnless(pair.end->Break());
        pair.fencing = true;
      } else {
        done = message.word == Word::kDone;
      }
    }
    for (size_t i = 0; i < pairs_.size(); ++i) Answer(i);
    return done;
  }

  void Answer(size_t i) {
    Receiving& pair = pairs_[i];
    if (pair.end == nullptr || !pair.end->failed()) return;
    if (!pair.fencing) {
      if (!pair.said_lost) context_.oob->Say({Word::kLost, static_cast<uint32_t>(i), pair.before, {}});
      pair.said_lost = true;
      return;
    }
    if (!pair.end->drained() || pair.answered) return;
    pair.answered = true;
    pair.before += pair.end->received();
    context_.oob->Say({Word::kFenced, static_cast<uint32_t>(i), pair.before, {}});
  }

  void Sleep() {
    std::vector<pollfd> entries = {{context_.oob->fd(), POLLIN, 0},
                                   {context_.port.device->events_fd(), POLLIN, 0}};
    bool moved = false;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].end == nullptr) continue;
      DieUnless(pairs_[i].end->queue_pair().Arm());
      Progress(i, &moved);
      entries.push_back({pairs_[i].end->queue_pair().fd(), POLLIN, 0});
    }
    // Each second the ends look after their device.
    if (moved || poll(entries.data(), entries.size(), 1000) != 0) {
      idle_s_ = 0;
    } else if (++idle_s_ == 20) {
      Die("nothing has moved for twenty seconds: receiver, at message " + std::to_string(oldest_));
    }
    // The sender has given up first: where this end stood then helps to see why.
    if (!context_.oob->lost()) return;
    for (const Receiving& pair : pairs_) {
      if (pair.end == nullptr) continue;
      const std::string at = ", received " + std::to_string(pair.before + pair.end->received()) +
                             ", described " + std::to_string(pair.end->described()) + ", ";
      printf("%s%s%s%s%s\n", pair.fencing ? "fencing" : "live", pair.answered ? " answered" : "",
             pair.end->failed() ? " failed" : "", at.c_str(), StateText(*pair.end).c_str());
    }
  }

  const Context& context_;
  const Plan& plan_;
  Tally* const tally_;
  std::vector<Receiving> pairs_;
  std::vector<Slot> slots_;
  std::vector<std::vector<bool>> seen_;  // chunks, by message
  uint64_t oldest_ = 0;                  // first message that has not come whole
  uint64_t granted_ = 0;
  int idle_s_ = 0;
};

}  // namespace

void RunReceiver(const Context& context, const Plan& plan, Tally* tally) {
  Receiver(context, plan, tally).Run();
}

}  // namespace c4::rdma_test
