#include "ccl/control/control.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
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

Result ControlClient::Start() {
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Fail(ncclSystemError, "cannot make an eventfd: %s", ErrnoText(errno).c_str());
  return thread_.Start("c4-control", [this] { Run(); });
}

void ControlClient::Stop() {
  if (!thread_.started()) return;
  stop_.store(true);
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;
  thread_.Join();
}

void ControlClient::StartForProcess() {
  static const bool started = [] {
    Monitor& monitor = Monitor::Get();
    if (KnobNumber(Knob::C4_CONTROL) == 0 || monitor.segment().file_name().empty()) return false;
    auto* client = new ControlClient(&monitor);  // lives as long as the process
    const Result result = client->Start();
    if (!result.ok()) C4_WARN("%s", result.message().c_str());
    return result.ok();
  }();
  (void)started;
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
      Serve(fd.get());
      connected_.store(false);
      alone_since = MonotonicNs();
    } else if (!warned && MonotonicNs() - alone_since > kWarnAfterNs) {
      warned = true;
      C4_WARN(
          "no agent listens at %s/%s: the job runs, but nobody watches it; start c4a on this node, or set "
          "C4_CONTROL=0",
          monitor_->directory().c_str(), wire::kControlSocketName);
    }
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
  struct Hello {
    wire::ControlFrame frame;
    wire::ControlHello body;
  } hello{};
  hello.frame.header.magic = wire::kControlMagic;
  hello.frame.header.major = wire::kControlMajor;
  hello.frame.header.minor = wire::kControlMinor;
  hello.frame.header.endian = wire::kEndianMark;
  hello.frame.header.header_bytes = sizeof(wire::ControlFrame);
  hello.frame.header.record_bytes = sizeof(wire::ControlHello);
  hello.frame.header.total_bytes = sizeof hello;
  hello.frame.header.writer = monitor_->segment().header().header.writer;
  hello.frame.type = wire::kControlHello;
  hello.body.library_version = NCCL_VERSION_CODE;
  CopyText(hello.body.segment_name, sizeof hello.body.segment_name, monitor_->segment().file_name());
  return send(fd->get(), &hello, sizeof hello, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof hello);
}

void ControlClient::Serve(int fd) {
  while (!stop_.load()) {
    pollfd entries[] = {{fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(entries, 2, -1) < 0 && errno != EINTR) return;
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

void ControlClient::HandlePacket(const char* packet, size_t bytes) {
  wire::HeaderFault fault = wire::HeaderFault::kOk;
  if (wire::ControlBody(packet, bytes, 0, &fault) == nullptr) {
    C4_WARN("a frame of the agent %s: it is left out; update the agent or the library",
            wire::HeaderFaultText(fault));
    return;
  }
  wire::ControlFrame frame;
  memcpy(&frame, packet, sizeof frame);
  uint32_t level = wire::kLevelOff;
  if (frame.type == wire::kControlWelcome) {
    const void* body = wire::ControlBody(packet, bytes, sizeof(wire::ControlWelcome), &fault);
    if (body == nullptr) return;
    wire::ControlWelcome welcome;
    memcpy(&welcome, body, sizeof welcome);
    level = welcome.level;
  } else if (frame.type == wire::kControlLevel) {
    const void* body = wire::ControlBody(packet, bytes, sizeof(wire::ControlLevel), &fault);
    if (body == nullptr) return;
    wire::ControlLevel change;
    memcpy(&change, body, sizeof change);
    level = change.level;
  } else {
    return;
  }
  if (level <= wire::kLevelFine) monitor_->SetLevel(static_cast<wire::RecordLevel>(level));
}

}  // namespace c4
