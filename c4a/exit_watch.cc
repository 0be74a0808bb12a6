#include "c4a/exit_watch.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace c4::agent {
namespace {

constexpr int kExitCodeField = 52;      // of /proc/PID/stat, from 1 (proc(5))
constexpr uint64_t kStop = UINT64_MAX;  // no pid

// struct pidfd_info of linux/pidfd.h in its first form, which the headers of most systems do not have yet.
struct PidfdInfo {
  uint64_t mask;
  uint64_t cgroup_id;
  uint32_t ids[11];
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t kPidfdInfoExit = 1U << 3;
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

std::optional<int32_t> StatusOfPidfd(int fd) {
  PidfdInfo info{};
  info.mask = kPidfdInfoExit;
  if (ioctl(fd, kPidfdGetInfo, &info) != 0 || (info.mask & kPidfdInfoExit) == 0) return std::nullopt;
  return info.exit_code;
}

}  // namespace

std::optional<int32_t> ExitCodeOfStat(const std::string& text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  const char state = text[name_end + 2];
  if (state != 'Z' && state != 'X') return std::nullopt;
  size_t at = name_end + 2;
  for (int field = 3; field < kExitCodeField; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  int32_t code = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), code);
  // A 0 may be the kernel's answer to somebody who may not know.
  if (error != std::errc() || (code == 0 && geteuid() != 0)) return std::nullopt;
  return code;
}

ExitWatch::ExitWatch(std::string proc_root)
    : proc_root_(std::move(proc_root)),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      stop_fd_(eventfd(0, EFD_CLOEXEC)) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStop;
  if (epoll_fd_ < 0 || stop_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, stop_fd_, &event) != 0) return;
  thread_ = std::thread([this] { Run(); });
}

ExitWatch::~ExitWatch() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (write(stop_fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  for (const auto& [pid, watched] : watched_) close(watched.fd);
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (stop_fd_ >= 0) close(stop_fd_);
}

bool ExitWatch::Watch(uint32_t pid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) return false;
  if (watched_.contains(pid)) return true;
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (fd < 0) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = pid;
  watched_[pid].fd = fd;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return true;
  watched_.erase(pid);
  close(fd);
  return false;
}

std::optional<ProcessExit> ExitWatch::ExitOf(uint32_t pid) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = watched_.find(pid);
  return at == watched_.end() ? std::nullopt : at->second.exit;
}

void ExitWatch::Forget(uint32_t pid) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = watched_.find(pid);
  if (at == watched_.end()) return;
  close(at->second.fd);  // and with it out of the epoll
  watched_.erase(at);
}

void ExitWatch::TakeExit(uint32_t pid) {
  const int64_t now_ns = MonotonicNs();
  // The parent takes the code at any moment.
  std::ifstream file(proc_root_ + "/" + std::to_string(pid) + "/stat");
  std::string text;
  // A read fails (ESRCH) where it is taken meanwhile; iterators of the buffer would throw then.
  std::getline(file, text, '\0');
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = watched_.find(pid);
  if (at == watched_.end()) return;
  std::optional<int32_t> status = ExitCodeOfStat(text);
  if (!status.has_value()) status = StatusOfPidfd(at->second.fd);
  at->second.exit = ProcessExit{now_ns, status};
  // It stays readable for ever; nothing more is to be learnt from it.
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, at->second.fd, nullptr);
}

void ExitWatch::Run() {
  pthread_setname_np(pthread_self(), "c4a-exits");
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::array<epoll_event, 64> events{};
  for (;;) {
    const int count = epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      if (events[static_cast<size_t>(i)].data.u64 == kStop) return;
      TakeExit(static_cast<uint32_t>(events[static_cast<size_t>(i)].data.u64));
    }
  }
}

}  // namespace c4::agent
