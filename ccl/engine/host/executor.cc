#include "ccl/engine/host/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/engine/host/plan_run.h"

namespace c4::host {
namespace {

constexpr int kPollMs = 200;

// What this rank sends to itself, in order.
Result CopyToSelf(const std::vector<Transfer>& transfers, int rank, const std::function<void(size_t)>& done) {
  std::vector<size_t> sends;
  std::vector<size_t> receives;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].peer == rank) (transfers[i].sends ? sends : receives).push_back(i);
  }
  if (sends.size() != receives.size()) {
    return Fail(
        ncclInvalidUsage,
        "rank %d sends %zu messages to itself and receives %zu in the same group: both have to be in it",
        rank, sends.size(), receives.size());
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    const Transfer& from = transfers[sends[i]];
    const Transfer& to = transfers[receives[i]];
    if (from.bytes != to.bytes) {
      return Fail(ncclInvalidUsage, "rank %d sends %zu bytes to itself where it receives %zu", rank,
                  from.bytes, to.bytes);
    }
    if (from.bytes != 0) memmove(to.buffer, from.data, from.bytes);
    done(sends[i]);
    done(receives[i]);
  }
  return Ok();
}

}  // namespace

Executor::Executor(Links* links, size_t slice_bytes, uint64_t silence_ns, std::function<bool()> cancelled)
    : links_(links), slice_bytes_(slice_bytes), silence_ns_(silence_ns), cancelled_(std::move(cancelled)) {}

Executor::~Executor() = default;

Result Executor::Drive(const std::function<Result(bool* moved, bool* done)>& step) {
  uint64_t last_move_ns = 0;  // 0: it has not waited yet, and most small runs never do
  uint64_t progress = 0;
  for (;;) {
    if (cancelled_()) return Fail(ncclInvalidUsage, "the communicator was aborted");
    bool moved = false;
    bool done = false;
    C4_RETURN_IF_ERROR(step(&moved, &done));
    if (done) {
      links_->WakeNeighbours();
      return Ok();
    }
    C4_RETURN_IF_ERROR(links_->Progress(&moved));
    if (moved) continue;
    C4_RETURN_IF_ERROR(links_->Wait(kPollMs));
    if (silence_ns_ == 0) continue;
    // Peers tell each other that they live, and try new paths: only what was moved counts.
    const uint64_t now_ns = MonotonicNs();
    const uint64_t count = links_->ProgressCount();
    if (last_move_ns == 0 || count != progress) {
      progress = count;
      last_move_ns = now_ns;
    } else if (now_ns - last_move_ns > silence_ns_) {
      return Fail(ncclRemoteError, "no byte came or went for %llu s (C4_TIMEOUT)",
                  static_cast<unsigned long long>(silence_ns_ / 1000000000u));
    }
  }
}

Result Executor::Run(const Plan& plan, const Work& work) {
  if (run_ == nullptr) run_ = std::make_unique<PlanRun>(links_, slice_bytes_);
  C4_RETURN_IF_ERROR(run_->Begin(plan, work));
  return Drive([&](bool* moved, bool* done) { return run_->Advance(moved, done); });
}

Result Executor::Run(const std::vector<Transfer>& transfers, int rank,
                     const std::function<void(size_t)>& done) {
  C4_RETURN_IF_ERROR(CopyToSelf(transfers, rank, done));
  // A transfer is over when its connection has completed as many messages as there were up to it.
  struct Open {
    size_t index;
    const SendConnection* send;
    const ReceiveConnection* receive;
    uint64_t target;
  };
  std::vector<Open> open;
  std::map<const ReceiveConnection*, bool> begun;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Transfer& transfer = transfers[i];
    if (transfer.peer == rank) continue;
    if (transfer.sends) {
      SendConnection* connection = nullptr;
      C4_RETURN_IF_ERROR(links_->SendTo(transfer.peer, kPairChannel, &connection));
      connection->Post(transfer.data, transfer.bytes);
      open.push_back({i, connection, nullptr, connection->posted()});
    } else {
      ReceiveConnection* connection = links_->ReceiveFrom(transfer.peer, kPairChannel);
      if (!std::exchange(begun[connection], true)) connection->BeginOperation();
      connection->Post(transfer.buffer, transfer.bytes);
      open.push_back({i, nullptr, connection, connection->posted()});
    }
  }
  return Drive([&](bool*, bool* all_done) {
    open.erase(std::remove_if(open.begin(), open.end(),
                              [&](const Open& entry) {
                                const uint64_t completed = entry.send != nullptr ? entry.send->completed()
                                                                                 : entry.receive->completed();
                                if (completed < entry.target) return false;
                                done(entry.index);
                                return true;
                              }),
               open.end());
    *all_done = open.empty();
    return Ok();
  });
}

}  // namespace c4::host
