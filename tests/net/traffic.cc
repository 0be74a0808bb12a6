#include "tests/net/traffic.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fabric/emulator/command.h"

namespace c4::net_test {
namespace {

using Clock = std::chrono::steady_clock;

sockaddr_in Address(const std::string& text, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, text.c_str(), &address.sin_addr);
  return address;
}

// Waits for `events` until `until`; false when the time is up.
bool Await(int fd, short events, Clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  pollfd poll_fd = {fd, events, 0};
  return left > 0 && poll(&poll_fd, 1, static_cast<int>(left)) > 0;
}

absl::Status Send(int fd, const fabric::FiveTuple& tuple, size_t bytes, Clock::time_point until) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in source = Address(tuple.source, tuple.source_port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&source), sizeof source) != 0) {
    return absl::ErrnoToStatus(errno, "cannot bind " + TupleText(tuple));
  }
  const sockaddr_in destination = Address(tuple.destination, tuple.destination_port);
  const absl::Status late = absl::DeadlineExceededError(TupleText(tuple));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&destination), sizeof destination) != 0 &&
      errno != EINPROGRESS) {
    return absl::ErrnoToStatus(errno, "cannot connect " + TupleText(tuple));
  }
  if (!Await(fd, POLLOUT, until)) return late;
  const std::vector<char> data(65536, 'c');
  while (bytes > 0) {
    const ssize_t count = send(fd, data.data(), std::min(bytes, data.size()), MSG_NOSIGNAL);
    if (count > 0) bytes -= static_cast<size_t>(count);
    if (count < 0 && errno != EAGAIN) return absl::ErrnoToStatus(errno, "cannot send on " + TupleText(tuple));
    if (count < 0 && !Await(fd, POLLOUT, until)) return late;
  }
  // The sink closes when it has read the end.
  shutdown(fd, SHUT_WR);
  char byte;
  if (!Await(fd, POLLIN, until)) return late;
  return recv(fd, &byte, 1, 0) == 0 ? absl::OkStatus()
                                    : absl::UnavailableError(TupleText(tuple) + " was reset");
}

}  // namespace

Sink::Sink(const std::string& ns, int port) {
  const absl::Status listening = fabric::InNamespace(ns, [&]() -> absl::Status {
    listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listen_fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_in any = Address("0.0.0.0", port);
    if (bind(listen_fd_, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
      return absl::ErrnoToStatus(errno, "bind");
    }
    listen(listen_fd_, 64);
    return absl::OkStatus();
  });
  if (!listening.ok()) return;
  thread_ = std::thread([this] {
    std::vector<std::thread> readers;
    for (int fd; (fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      readers.emplace_back([fd] {
        // A sender behind a dead link never says goodbye.
        const timeval patience = {3, 0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        std::vector<char> buffer(65536);
        while (recv(fd, buffer.data(), buffer.size(), 0) > 0) {
        }
        close(fd);
      });
    }
    for (std::thread& reader : readers) reader.join();
  });
}

Sink::~Sink() {
  if (listen_fd_ >= 0) shutdown(listen_fd_, SHUT_RDWR);
  if (thread_.joinable()) thread_.join();
  if (listen_fd_ >= 0) close(listen_fd_);
}

absl::Status SendBytes(const std::string& ns, const fabric::FiveTuple& tuple, size_t bytes, int limit_ms) {
  return fabric::InNamespace(ns, [&]() -> absl::Status {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
    absl::Status status = Send(fd, tuple, bytes, Clock::now() + std::chrono::milliseconds(limit_ms));
    close(fd);
    return status;
  });
}

std::map<std::string, uint64_t> SentBytes(const std::string& ns) {
  std::map<std::string, uint64_t> result;
  fabric::InNamespace(ns, [&]() -> absl::Status {
    const std::string text = fabric::ReadText("/proc/thread-self/net/dev");
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
      const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" :"), absl::SkipEmpty());
      uint64_t bytes = 0;
      if (words.size() > 9 && absl::SimpleAtoi(words[9], &bytes)) result[words[0]] = bytes;
    }
    return absl::OkStatus();
  }).IgnoreError();
  return result;
}

}  // namespace c4::net_test
