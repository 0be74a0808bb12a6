#include "ccl/control/control.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "ccl/base/caught.h"
#include "ccl/base/log.h"
#include "ccl/control/hold.h"
#include "ccl/control/plans.h"
#include "wire/control.h"

namespace c4 {
namespace {

constexpr int kFirstPauseMs = 100;
constexpr int kLongestPauseMs = 5000;
// Agent and job often start together: only a longer absence is worth a line.
constexpr uint64_t kWarnAfterNs = 5000000000u;

// Waits until `wake` fires or the time is over; false when it fired.
bool Pause(int wake, int ms) {
  pollfd entry{wake, POLLIN, 0};
  return poll(&entry, 1, ms) == 0;
}

}  // namespace

ControlClient::~ControlClient() {
  Stop();
}

Result ControlClient::Start(ControlListener* listener) {
  listener_ = listener;
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Fail(ncclSystemError, "cannot make an eventfd: %s", ErrnoText(errno).c_str());
  return thread_.Start("c4-control", [this] {
    // Want of memory passes.
    while (!stop_.load() && !Caught([this] { return Run(), Ok(); }).ok()) Pause(wake_.get(), kLongestPauseMs);
  });
}

void ControlClient::Stop() {
  if (!thread_.started()) return;
  stop_.store(true);
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;
  thread_.Join();
}

void ControlClient::Run() {
  int pause_ms = kFirstPauseMs;
  bool warned = false;
  uint64_t alone_since = MonotonicNs();
  while (!stop_.load()) {
    Fd fd;
    if (Connect(&fd)) {
      pause_ms = kFirstPauseMs;
      if (warned) C4_WARN("the agent at %s is back", monitor_->directory().c_str());
      warned = false;
      connections_.fetch_add(1);
      connected_.store(true);
      SetSending(fd.get());
      if (listener_ != nullptr) listener_->Connected();
      Serve(fd.get());
      SetSending(-1);
      Holder::Get().EndAll(wire::kHoldAgentGone);
      Plans::Get().WithdrawAll();
      connected_.store(false);
      alone_since = MonotonicNs();
    } else if (!warned && MonotonicNs() - alone_since > kWarnAfterNs) {
      warned = true;
      C4_WARN(
          "no agent listens at %s/%s: the job runs, but nobody watches it; start c4a on this node, or set "
          "C4_CONTROL=0",
          monitor_->directory().c_str(), wire::kControlSocketName);
    }
    if (listener_ != nullptr && !connected_.load()) listener_->Alone();
    if (!Pause(wake_.get(), pause_ms)) return;
    pause_ms = std::min(pause_ms * 2, kLongestPauseMs);
  }
}

bool ControlClient::Connect(Fd* fd) {
  const std::string path = monitor_->directory() + "/" + wire::kControlSocketName;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  memcpy(address.sun_path, path.c_str(), path.size());
  fd->Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd->valid()) return false;
  if (connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return false;
  wire::ControlHello hello{};
  hello.library_version = NCCL_VERSION_CODE;
  CopyText(hello.segment_name, sizeof hello.segment_name, monitor_->segment().file_name());
  const auto packet = wire::MakeControlPacket(wire::kControlHello, writer(), hello);
  return send(fd->get(), &packet, sizeof packet, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof packet);
}

void ControlClient::SetSending(int fd) {
  const std::lock_guard lock(sending_);
  send_fd_ = fd;
}

bool ControlClient::SendPacket(const void* packet, size_t bytes) {
  const std::lock_guard lock(sending_);
  return send_fd_ >= 0 &&
         send(send_fd_, packet, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

void ControlClient::Serve(int fd) {
  while (!stop_.load()) {
    Holder& holder = Holder::Get();
    pollfd entries[] = {{fd, POLLIN, 0},
                        {wake_.get(), POLLIN, 0},
                        {holder.news_fd(), POLLIN, 0},
                        {Plans::Get().news_fd(), POLLIN, 0}};
    if (poll(entries, 4, holder.Tick()) < 0 && errno != EINTR) return;
    // An agent that does not read learns of it when its time is over.
    for (wire::ControlHoldState state{}; entries[2].revents != 0 && holder.TakeNews(&state);) {
      (void)Send(wire::kControlHoldState, state);
    }
    if (entries[3].revents != 0) TellOfPlans();
    if (entries[0].revents == 0) continue;
    char packet[wire::kControlMaxBytes];
    const ssize_t bytes = recv(fd, packet, sizeof packet, MSG_TRUNC);
    if (bytes == 0) return;
    if (bytes < 0) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return;
    }
    if (static_cast<size_t>(bytes) <= sizeof packet) HandlePacket(packet, static_cast<size_t>(bytes));
  }
}

void ControlClient::TellOfPlans() {
  Plans& plans = Plans::Get();
  plans.ClearNews();
  for (wire::ControlPlanAnswer answer{}; plans.TakeAnswer(&answer);) {
    (void)Send(wire::kControlPlanAnswer, answer);
  }
  wire::ControlPlanStep step{};
  if (!plans.TakeStep(&step)) return;
  step.worker = monitor_->worker();
  (void)Send(wire::kControlPlanStep, step);
}

void ControlClient::HandlePacket(const char* packet, size_t bytes) {
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (wire::ControlBody(packet, bytes, 0, &fault) == nullptr) {
    C4_WARN("a frame of the agent %s: it is left out; update the agent or the library",
            wire::HeaderFaultText(fault));
    return;
  }
  wire::ControlFrame frame;
  memcpy(&frame, packet, sizeof frame);
  uint32_t level = UINT32_MAX;
  if (frame.type == wire::kControlWelcome) {
    wire::ControlWelcome welcome;
    if (wire::ReadControlBody(packet, bytes, &welcome, &fault)) level = welcome.level;
  } else if (frame.type == wire::kControlLevel) {
    wire::ControlLevel change;
    if (wire::ReadControlBody(packet, bytes, &change, &fault)) level = change.level;
  } else if (frame.type == wire::kControlPathAnswer && listener_ != nullptr) {
    wire::ControlPathAnswer answer;
    if (wire::ReadControlBody(packet, bytes, &answer, &fault)) listener_->Answered(answer);
  } else if (frame.type == wire::kControlHoldArm) {
    wire::ControlHoldArm order;
    if (wire::ReadControlBody(packet, bytes, &order, &fault) && order.hold != 0) {
      Holder::Get().Order(monitor_, order);
    }
  } else if (frame.type == wire::kControlPlan) {
    wire::ControlPlan plan;
    if (wire::ReadControlBody(packet, bytes, &plan, &fault) && plan.plan != 0) {
      Plans::Get().Offer(monitor_, plan);
    }
  } else if (frame.type == wire::kControlHoldEnd) {
    wire::ControlHoldEnd end;
    if (wire::ReadControlBody(packet, bytes, &end, &fault)) Holder::Get().End(end.hold);
  }
  if (level <= wire::kLevelFine) monitor_->SetLevel(static_cast<wire::RecordLevel>(level));
}

}  // namespace c4
