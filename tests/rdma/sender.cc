// The sender of a history (transfer.h).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>

#include "ccl/base/clock.h"
#include "tests/rdma/transfer.h"

namespace c4::rdma_test {
namespace {

struct Sending {
  std::unique_ptr<verbs::SendEnd> end;
  std::deque<Chunk> under_way;  // posted in this epoch and not completed, oldest first
  uint64_t settled = 0;         // completed in this epoch and counted
  uint64_t before = 0;          // chunks that arrived in earlier epochs
  bool connected = false;
  bool fencing = false;
};

class Sender {
 public:
  Sender(const Context& context, const Plan& plan, Tally* tally)
      : context_(context),
        plan_(plan),
        tally_(tally),
        random_(plan.seed ^ 0x5eedull),
        pairs_(plan.queue_pairs) {
    for (size_t number = 0; number < plan.messages.size(); ++number) {
      const uint64_t bytes = plan.messages[number].bytes;
      std::vector<char> data(std::max<uint64_t>(bytes, 1));
      for (uint64_t at = 0; at < bytes; ++at) data[at] = ByteOf(plan.seed, number, at);
      data_.push_back(std::move(data));
      left_.push_back(std::max<uint64_t>(1, (bytes + plan.chunk_bytes - 1) / plan.chunk_bytes));
    }
    keys_.resize(data_.size());
    for (size_t i = 0; i < pairs_.size(); ++i) Open(i);
  }

  void Run() {
    last_ns_ = MonotonicNs();
    while (oldest_ < plan_.messages.size()) {
      bool moved = false;
      context_.port.device->TakeEvents();
      for (size_t i = 0; i < pairs_.size(); ++i) Progress(i, &moved);
      Hear(&moved);
      Cut();
      moved |= PostSome();
      if (!moved) Sleep();
    }
    for (const Sending& pair : pairs_) pair.end->SayGoodbye();
    context_.oob->Say({Word::kDone, 0, 0, {}});
  }

 private:
  void Open(size_t i) {
    Sending& pair = pairs_[i];
    DieUnless(verbs::SendEnd::Create(PresentPort(context_), context_.settings, plan_.chunk_bytes, &pair.end));
    pair.end->Begin(oldest_);
    pair.connected = pair.fencing = false;
    pair.settled = 0;
    context_.oob->Say({Word::kEnd, static_cast<uint32_t>(i), oldest_, pair.end->queue_pair().end()});
  }

  void Progress(size_t i, bool* moved) {
    Sending& pair = pairs_[i];
    DieUnless(pair.end->Progress(moved));
    for (; pair.settled < pair.end->completed(); ++pair.settled) {
      Settle(pair.under_way.front());
      pair.under_way.pop_front();
    }
    if (!pair.end->failed() || pair.fencing) return;
    if (pair.end->status() != verbs::abi::kSuccess) tally_->statuses.insert(pair.end->status());
    DieUnless(pair.end->Break());
    if (!pair.end->drained()) return;
    // Only now nothing reads the buffers any more.
    pair.fencing = true;
    context_.oob->Say({Word::kFence, static_cast<uint32_t>(i), 0, {}});
  }

  void Settle(const Chunk& chunk) {
    const uint64_t now = MonotonicNs();
    tally_->longest_gap_ns = std::max(tally_->longest_gap_ns, now - last_ns_);
    last_ns_ = now;
    ++tally_->chunks;
    tally_->bytes += chunk.bytes;
    --left_[chunk.message];
    while (oldest_ < left_.size() && left_[oldest_] == 0) {
      keys_[oldest_].Release();
      ++oldest_;
      for (const Sending& pair : pairs_) pair.end->Forget(oldest_);
    }
  }

  void Hear(bool* moved) {
    Message message;
    while (context_.oob->Hear(&message)) {
      *moved = true;
      Sending& pair = pairs_.at(message.queue_pair);
      if (message.word == Word::kEnd) {
        ConnectOrBreak(pair.end.get(), message.end);
        pair.connected = true;
      } else if (message.word == Word::kLost) {
        // Of this epoch: of the one before, it came before the answer to its fence.
        if (!pair.fencing) DieUnless(pair.end->Break());
      } else if (message.word == Word::kFenced) {
        Fenced(message.queue_pair, message.number);
      } else {
        Die("the receiver said something else");
      }
    }
  }

  void Fenced(size_t i, uint64_t received) {
    Sending& pair = pairs_[i];
    if (received < pair.before + pair.settled ||
        received > pair.before + pair.settled + pair.under_way.size()) {
      Die("a fence was answered with an impossible number");
    }
    for (uint64_t n = pair.before + pair.settled; n < received; ++n) {
      Settle(pair.under_way.front());
      pair.under_way.pop_front();
      ++tally_->spared;
    }
    pair.before = received;
    tally_->resent += pair.under_way.size();
    ready_.insert(ready_.begin(), pair.under_way.begin(), pair.under_way.end());
    pair.under_way.clear();
    ++tally_->epochs;
    Open(i);
  }

  // Of the next messages, chunks to be posted.
  void Cut() {
    while (cut_ < plan_.messages.size() && cut_ < oldest_ + plan_.window) {
      for (const Plan::Fault& fault : plan_.faults) {
        if (fault.at == cut_) Suffer(fault);
      }
      const uint64_t bytes = plan_.messages[cut_].bytes;
      DieUnless(context_.port.device->memory().Acquire(data_[cut_].data(), std::max<uint64_t>(bytes, 1),
                                                       false, &keys_[cut_]));
      for (uint64_t n = 0; n < left_[cut_]; ++n) {
        const uint64_t at = n * plan_.chunk_bytes;
        ready_.push_back({cut_, bytes, static_cast<uint32_t>(n),
                          static_cast<uint32_t>(std::min<uint64_t>(plan_.chunk_bytes, bytes - at))});
      }
      ++cut_;
    }
  }

  void Suffer(const Plan::Fault& fault) {
    Sending& pair = pairs_[fault.queue_pair];
    if (fault.kind == Plan::Fault::kCommand) {
      char shell[] = "/bin/sh";
      char option[] = "-c";
      std::string command = fault.command;
      char* arguments[] = {shell, option, command.data(), nullptr};
      pid_t child = 0;
      if (posix_spawn(&child, shell, nullptr, nullptr, arguments, environ) != 0) Die("no " + command);
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) Die("failed: " + command);
      printf("at message %llu: %s\n", static_cast<unsigned long long>(fault.at), command.c_str());
    }
    if (!pair.connected || pair.end->failed()) return;
    if (fault.kind == Plan::Fault::kSenderBreaks) DieUnless(pair.end->Break());
    if (fault.kind == Plan::Fault::kSteer) DieUnless(pair.end->Steer(fault.port));
  }

  bool PostSome() {
    bool any = false;
    while (!ready_.empty()) {
      std::vector<Sending*> able;
      for (Sending& pair : pairs_) {
        if (pair.connected && !pair.end->failed() && ready_.front().message < pair.end->described() &&
            pair.under_way.size() < 128) {
          able.push_back(&pair);
        }
      }
      if (able.empty()) return any;
      Sending& pair = *able[random_() % able.size()];
      const Chunk chunk = ready_.front();
      ready_.pop_front();
      const char* const data =
          data_[chunk.message].data() + static_cast<uint64_t>(chunk.index) * plan_.chunk_bytes;
      DieUnless(pair.end->Post(chunk, data, keys_[chunk.message].local_key()));
      pair.under_way.push_back(chunk);
      any = true;
    }
    return any;
  }

  void Sleep() {
    std::vector<pollfd> entries = {{context_.oob->fd(), POLLIN, 0},
                                   {context_.port.device->events_fd(), POLLIN, 0}};
    bool moved = false;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      DieUnless(pairs_[i].end->queue_pair().Arm());
      Progress(i, &moved);
      entries.push_back({pairs_[i].end->queue_pair().fd(), POLLIN, 0});
    }
    // Each second the ends look after their device.
    if (moved || poll(entries.data(), entries.size(), 1000) != 0) {
      idle_s_ = 0;
    } else if (++idle_s_ == 10) {
      SayState();
      Die("nothing has moved for ten seconds: sender, at message " + std::to_string(oldest_));
    }
  }

  void SayState() const {
    printf("open %llu to %llu, %zu chunks ready\n", static_cast<unsigned long long>(oldest_),
           static_cast<unsigned long long>(cut_), ready_.size());
    for (const Sending& pair : pairs_) {
      printf("%s%s%s, under way %zu, described %llu, %s\n", pair.connected ? "connected" : "dialled",
             pair.fencing ? " fencing" : "", pair.end->failed() ? " failed" : "", pair.under_way.size(),
             static_cast<unsigned long long>(pair.end->described()), StateText(*pair.end).c_str());
    }
  }

  const Context& context_;
  const Plan& plan_;
  Tally* const tally_;
  std::mt19937_64 random_;
  std::vector<Sending> pairs_;
  std::vector<std::vector<char>> data_;
  std::vector<verbs::RegistrationUse> keys_;
  std::vector<uint64_t> left_;  // chunks that have not arrived, by message
  std::deque<Chunk> ready_;
  uint64_t oldest_ = 0;  // first message that has not arrived whole
  uint64_t cut_ = 0;
  int idle_s_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace

void RunSender(const Context& context, const Plan& plan, Tally* tally) {
  Sender(context, plan, tally).Run();
}

}  // namespace c4::rdma_test
