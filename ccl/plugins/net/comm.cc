#include "ccl/plugins/net/comm.h"

#include <netinet/in.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/plugins/net/handle.h"

namespace c4::net {
namespace {

// NCCL tests without a pause as long as anything is under way; when it has not for so long, nobody does.
constexpr uint64_t kDrivenNs = 20000000;
constexpr uint64_t kWatchNs = 5000000;
constexpr uint64_t kIdleNs = 1000000000;

// A ring has one writer. Comms are driven by many threads, but records of messages are written at the fine
// level only: then they take turns at one ring.
struct SharedRing {
  std::mutex mutex;
  RingWriter writer;
};

SharedRing* TheRing(Monitor* monitor) {
  static SharedRing* const ring = [monitor] {
    auto* made = new SharedRing;  // lives as long as the process
    made->writer = monitor->LeaseRing();
    return made;
  }();
  return ring;
}

}  // namespace

Comm::Comm(const Identity& identity, int peer, uint16_t channel, uint64_t number, int most_requests)
    : recording_{identity.monitor, identity.communicator, &ring_, identity.rank, peer, channel,
                 number,           StreamKeyOf(number)},
      requests_(static_cast<size_t>(most_requests)) {
  for (Request& request : requests_) {
    request.comm = this;
    request.next = std::exchange(free_, &request);
  }
}

Request* Comm::TakeRequest() {
  if (free_ == nullptr) return nullptr;
  ++under_way_;
  return std::exchange(free_, free_->next);
}

void Comm::GiveBack(Request* request) {
  --under_way_;
  request->next = std::exchange(free_, request);
}

ncclResult_t Comm::Failed(Result result) {
  if (failed_.ok()) {
    C4_WARN("%s", result.message().c_str());
    failed_ = std::move(result);
  }
  return failed_.code();
}

// One call for all streams: most of NCCL's tests find nothing on any of them, and each read would be a call.
void Comm::LookAtStreams() {
  if (backend() == nullptr || backend()->protocol() != IPPROTO_TCP) return;
  polls_.clear();
  AppendDataPolls(&polls_);
  if (polls_.empty()) return;
  if (poll(polls_.data(), polls_.size(), 0) < 0) {
    for (pollfd& entry : polls_) entry.revents = POLLIN;  // each is to look for itself
  }
  TakeDataPolls(polls_.data());
}

ncclResult_t Comm::Drive() {
  if (!failed_.ok()) return failed_.code();
  LookAtStreams();
  bool moved = false;
  if (recording_.monitor->level() != wire::kLevelFine) {
    Result result = Progress(&moved);
    return result.ok() ? ncclSuccess : Failed(std::move(result));
  }
  SharedRing* const shared = TheRing(recording_.monitor);
  const std::lock_guard<std::mutex> lock(shared->mutex);
  ring_ = shared->writer;
  Result result = Progress(&moved);
  shared->writer = std::exchange(ring_, RingWriter());
  return result.ok() ? ncclSuccess : Failed(std::move(result));
}

ncclResult_t Comm::Test(Request* request, int* done, int* bytes) {
  *done = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++drives_;
  if (!IsDone(*request)) {
    if (const ncclResult_t result = Drive(); result != ncclSuccess) return result;
    if (!IsDone(*request)) return ncclSuccess;
  }
  *done = 1;
  for (int i = 0; bytes != nullptr && i < request->count; ++i) bytes[i] = static_cast<int>(request->bytes[i]);
  GiveBack(request);
  return ncclSuccess;
}

void Comm::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::exchange(closed_, true)) return;
  Leave();
}

uint64_t Comm::Look(uint64_t now_ns, bool path_news) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || !failed_.ok()) return UINT64_MAX;
  driven_ = std::exchange(seen_drives_, drives_) != drives_;
  if (!driven_) (void)Drive();
  if (!failed_.ok()) return UINT64_MAX;
  LookAtPaths(path_news);
  if (driven_) return now_ns + kDrivenNs;
  return now_ns + (watchful() ? kWatchNs : kIdleNs);
}

void Comm::AppendPolls(std::vector<pollfd>* polls) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_ || !failed_.ok() || driven_) return;
  const size_t before = polls->size();
  AppendDataPolls(polls);
  // Reports, and what comes early, wake nobody while nothing is under way.
  for (size_t i = before; under_way_ == 0 && i < polls->size(); ++i) (*polls)[i].events = POLLRDHUP;
  AppendFencePolls(polls);
}

}  // namespace c4::net
