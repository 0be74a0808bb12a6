#include "ccl/engine/host/executor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/engine/host/reduce.h"

namespace c4::host {
namespace {

// Receives posted ahead of the data, so that the next message lands while the last one is reduced.
constexpr size_t kPostedAhead = 4;
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
    : links_(links),
      slice_elements_(std::max<size_t>(1, slice_bytes / sizeof(float))),
      silence_ns_(silence_ns),
      cancelled_(std::move(cancelled)) {}

std::vector<Executor::Slice> Executor::Cut(const Plan& plan, size_t count, size_t slice_elements,
                                           bool sending) {
  std::vector<Slice> slices;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const Span span = ChunkSpan(count, plan.chunks, sending ? step.send_chunk : step.recv_chunk);
    for (size_t at = 0; at < span.count; at += slice_elements) {
      slices.push_back({s, span.first + at, std::min(slice_elements, span.count - at)});
    }
  }
  return slices;
}

Result Executor::Drive(const std::function<Result(bool* moved, bool* done)>& step) {
  uint64_t last_move_ns = MonotonicNs();
  for (;;) {
    if (cancelled_()) return Fail(ncclInvalidUsage, "the communicator was aborted");
    bool moved = false;
    bool done = false;
    C4_RETURN_IF_ERROR(step(&moved, &done));
    if (done) return Ok();
    C4_RETURN_IF_ERROR(links_->Progress(&moved));
    if (moved) {
      last_move_ns = MonotonicNs();
      continue;
    }
    C4_RETURN_IF_ERROR(links_->Wait(kPollMs));
    if (silence_ns_ != 0 && MonotonicNs() - last_move_ns > silence_ns_) {
      return Fail(ncclRemoteError, "no byte came or went for %llu s (C4_TIMEOUT)",
                  static_cast<unsigned long long>(silence_ns_ / 1000000000u));
    }
  }
}

// The slices of one step arrive in the order in which the next step sends them, so "this send may go" is a
// comparison of two counts: as many slices of the last step received and reduced as this step wants to send.
Result Executor::Run(const Plan& plan, const Buffers& buffers) {
  if (plan.steps.empty()) {
    if (buffers.output != buffers.input) memcpy(buffers.output, buffers.input, buffers.count * sizeof(float));
    return Ok();
  }
  const std::vector<Slice> sends = Cut(plan, buffers.count, slice_elements_, true);
  const std::vector<Slice> receives = Cut(plan, buffers.count, slice_elements_, false);
  // sends[i] of step s > 0 is the same piece as receives[i - (slices sent in step 0)].
  const size_t own = static_cast<size_t>(
      std::count_if(sends.begin(), sends.end(), [](const Slice& slice) { return slice.step == 0; }));
  if (scratch_.size() < kPostedAhead * slice_elements_) scratch_.resize(kPostedAhead * slice_elements_);

  SendConnection& send = *links_->ring_send();
  ReceiveConnection& receive = *links_->ring_receive();
  const uint64_t sent_before = send.posted();
  const uint64_t received_before = receive.posted();
  size_t posted_sends = 0;
  size_t posted_receives = 0;
  size_t received = 0;
  receive.BeginOperation();
  return Drive([&](bool* moved, bool* done) {
    for (; received < receive.completed() - received_before; ++received) {
      const Slice& slice = receives[received];
      if (!plan.steps[slice.step].reduce) continue;
      const float* from = scratch_.data() + received % kPostedAhead * slice_elements_;
      SumFloat(buffers.output + slice.first, buffers.input + slice.first, from, slice.count);
    }
    for (; posted_receives < receives.size() && posted_receives < received + kPostedAhead;
         ++posted_receives) {
      const Slice& slice = receives[posted_receives];
      float* to = plan.steps[slice.step].reduce
                      ? scratch_.data() + posted_receives % kPostedAhead * slice_elements_
                      : buffers.output + slice.first;
      receive.Post(to, slice.count * sizeof(float));
      *moved = true;
    }
    for (; posted_sends < sends.size() && posted_sends < own + received; ++posted_sends) {
      const Slice& slice = sends[posted_sends];
      const float* from = slice.step == 0 ? buffers.input : buffers.output;
      send.Post(from + slice.first, slice.count * sizeof(float));
      *moved = true;
    }
    *done = received == receives.size() && send.completed() - sent_before == sends.size();
    return Ok();
  });
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
      C4_RETURN_IF_ERROR(links_->SendTo(transfer.peer, &connection));
      connection->Post(transfer.data, transfer.bytes);
      open.push_back({i, connection, nullptr, connection->posted()});
    } else {
      ReceiveConnection* connection = links_->ReceiveFrom(transfer.peer);
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
