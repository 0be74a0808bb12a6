#include "ccl/engine/host/executor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/engine/host/reduce.h"

namespace c4::host {
namespace {

// Receives posted ahead of the data, so that the next message lands while the last one is reduced.
constexpr size_t kPostedAhead = 4;
constexpr int kPollMs = 200;

}  // namespace

Executor::Executor(const Channel& channel, size_t slice_bytes, uint64_t silence_ns,
                   std::function<bool()> cancelled)
    : channel_(channel),
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

Result Executor::Wait() {
  pollfd entries[] = {channel_.send->Poll(), channel_.recv->Poll(), {channel_.wake_fd, POLLIN, 0}};
  if (poll(entries, 3, kPollMs) < 0 && errno != EINTR) {
    return Fail(ncclSystemError, "cannot wait for the network: %s", ErrnoText(errno).c_str());
  }
  // Emptied here, or the next wait would not wait; what it announces is looked at by the callers.
  if (entries[2].revents != 0) {
    uint64_t count = 0;
    const ssize_t ignored = read(channel_.wake_fd, &count, sizeof count);
    (void)ignored;
  }
  return Ok();
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

  const uint64_t sent_before = channel_.send->posted();
  const uint64_t received_before = channel_.recv->posted();
  size_t posted_sends = 0;
  size_t posted_receives = 0;
  size_t received = 0;
  uint64_t last_move_ns = MonotonicNs();
  for (;;) {
    if (cancelled_()) return Fail(ncclInvalidUsage, "the communicator was aborted");
    bool moved = false;
    for (; posted_receives < receives.size() && posted_receives < received + kPostedAhead;
         ++posted_receives) {
      const Slice& slice = receives[posted_receives];
      float* to = plan.steps[slice.step].reduce
                      ? scratch_.data() + posted_receives % kPostedAhead * slice_elements_
                      : buffers.output + slice.first;
      channel_.recv->Post(to, slice.count * sizeof(float));
    }
    for (; posted_sends < sends.size() && posted_sends < own + received; ++posted_sends) {
      const Slice& slice = sends[posted_sends];
      const float* from = slice.step == 0 ? buffers.input : buffers.output;
      channel_.send->Post(from + slice.first, slice.count * sizeof(float));
      moved = true;
    }
    C4_RETURN_IF_ERROR(channel_.send->Progress(&moved));
    C4_RETURN_IF_ERROR(channel_.recv->Progress(&moved));
    for (; received < channel_.recv->completed() - received_before; ++received) {
      const Slice& slice = receives[received];
      if (!plan.steps[slice.step].reduce) continue;
      const float* from = scratch_.data() + received % kPostedAhead * slice_elements_;
      SumFloat(buffers.output + slice.first, buffers.input + slice.first, from, slice.count);
    }
    if (received == receives.size() && channel_.send->completed() - sent_before == sends.size()) return Ok();
    if (moved) {
      last_move_ns = MonotonicNs();
      continue;
    }
    C4_RETURN_IF_ERROR(Wait());
    if (silence_ns_ != 0 && MonotonicNs() - last_move_ns > silence_ns_) {
      return Fail(ncclRemoteError, "no byte came or went for %llu s (C4_TIMEOUT)",
                  static_cast<unsigned long long>(silence_ns_ / 1000000000u));
    }
  }
}

}  // namespace c4::host
