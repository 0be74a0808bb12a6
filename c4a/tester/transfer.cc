#include "c4a/tester/transfer.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

// <netinet/tcp.h> has an older tcp_info, without bytes_acked.
#include "service/address.h"
#include "service/text.h"

namespace c4::tester {
namespace {

using service::Concat;
using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kMostStreamsTaken = 256;
constexpr char kGreeting[8] = {'C', '4', 'T', 'E', 'S', 'T', 'E', 'R'};
// The offset of tcpi_bytes_acked in the kernel's tcp_info, since Linux 4.1: a part of its ABI.
constexpr size_t kBytesAckedOffset = 120;

uint64_t BytesAcked(int fd) {
  char info[256] = {};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) != 0) return 0;
  uint64_t acked = 0;
  if (bytes >= kBytesAckedOffset + sizeof acked) memcpy(&acked, info + kBytesAckedOffset, sizeof acked);
  return acked;
}

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  int family() const { return storage.ss_family; }
};

bool Fill(const std::string& host, uint16_t port, Address* address) {
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&address->storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address->bytes = sizeof *v4;
    return true;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address->bytes = sizeof *v6;
    return true;
  }
  return false;
}

int MsUntil(Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(0, left));
}

// One stream of a transfer.
class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (fd_ < 0) return;
    // Nothing that still lies in a queue is of use to anybody.
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd_);
  }

  std::string Connect(const Address* from, const Address& to) {
    fd_ = socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return Concat("no socket: ", strerror(errno));
    if (from != nullptr && bind(fd_, reinterpret_cast<const sockaddr*>(&from->storage), from->bytes) != 0) {
      return Concat("cannot send from this address: ", strerror(errno));
    }
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to.storage), to.bytes) != 0 && errno != EINPROGRESS) {
      return Concat("cannot connect: ", strerror(errno));
    }
    return "";
  }
  // Once it is writable.
  std::string Connected() {
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) return Concat("cannot connect: ", strerror(error));
    connected_ = true;
    began_ = Clock::now();
    return "";
  }
  std::string Write(const std::vector<char>& piece, uint64_t most) {
    while (given_ < most) {
      const bool greets = given_ < sizeof kGreeting;
      const char* const from = greets ? kGreeting + given_ : piece.data();
      const size_t bytes = greets ? sizeof kGreeting - given_
                                  : static_cast<size_t>(std::min<uint64_t>(piece.size(), most - given_));
      const ssize_t sent = send(fd_, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return errno == EAGAIN || errno == EINTR ? "" : Concat("broke off: ", strerror(errno));
      given_ += static_cast<uint64_t>(sent);
    }
    return "";
  }
  // Remembers how much has arrived, and when.
  void Look() {
    acked_ = connected_ ? BytesAcked(fd_) : 0;
    looked_ = Clock::now();
  }
  bool AllArrived(uint64_t most) const { return acked_ >= most; }
  bool connected() const { return connected_; }
  uint64_t acked() const { return acked_; }
  int fd() const { return fd_; }
  uint64_t given() const { return given_; }
  double MibPerSecond() const {
    const double seconds = std::chrono::duration<double>(looked_ - began_).count();
    return seconds > 0 ? static_cast<double>(acked_) / seconds / (1 << 20) : 0;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
  uint64_t given_ = 0;
  uint64_t acked_ = 0;
  Clock::time_point began_ = Clock::now();
  Clock::time_point looked_ = Clock::now();
};

}  // namespace

TransferFigures SendTransfer(const TransferOrder& order) {
  TransferFigures figures;
  figures.number = order.number;
  const auto fail = [&figures](const std::string& why) {
    figures.fault = why;
    return figures;
  };
  Address from;
  Address to;
  const absl::StatusOr<service::HostPort> target = service::ParseHostPort(order.to);
  if (!target.ok() || !Fill(target->host, static_cast<uint16_t>(target->port), &to)) {
    return fail(Concat("\"", order.to, "\" is no address and port to send to"));
  }
  if (!order.from.empty() && !Fill(order.from, 0, &from)) {
    return fail(Concat("\"", order.from, "\" is no address to send from"));
  }
  const auto began = Clock::now();
  const auto end = began + std::chrono::milliseconds(order.ms);
  const uint64_t most = std::max<uint64_t>(order.bytes / order.streams, sizeof kGreeting);
  const std::vector<char> piece(kPieceBytes, 'c');
  std::vector<Stream> streams(order.streams);
  for (Stream& stream : streams) {
    if (const std::string why = stream.Connect(order.from.empty() ? nullptr : &from, to); !why.empty()) {
      return fail(why);
    }
  }
  std::vector<pollfd> entries(streams.size());
  for (bool all = false; !all && Clock::now() < end;) {
    all = true;
    for (size_t i = 0; i < streams.size(); ++i) {
      const bool writes = streams[i].given() < most;
      entries[i] = {writes ? streams[i].fd() : -1, POLLOUT, 0};
    }
    // What lies in queues is acknowledged without a word: a look each millisecond.
    const bool writing =
        std::any_of(entries.begin(), entries.end(), [](const pollfd& e) { return e.fd >= 0; });
    poll(entries.data(), entries.size(), writing ? std::min(MsUntil(end), 10) : 1);
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream& stream = streams[i];
      std::string why;
      if (entries[i].revents != 0 && !stream.connected()) why = stream.Connected();
      if (why.empty() && entries[i].revents != 0) why = stream.Write(piece, most);
      if (!why.empty()) return fail(why);
      if (!stream.AllArrived(most)) stream.Look();
      all = all && stream.AllArrived(most);
    }
  }
  figures.ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
  bool any = false;
  for (Stream& stream : streams) {
    if (!stream.AllArrived(most)) stream.Look();
    any = any || stream.connected();
    figures.bytes += stream.acked();
    figures.stream_mib_s.push_back(stream.MibPerSecond());
  }
  if (!any) return fail("no connection came about in time");
  return figures;
}

Receiver::~Receiver() {
  stop_ = true;
  if (wake_ >= 0) eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
  if (listener_ >= 0) close(listener_);
  if (wake_ >= 0) close(wake_);
}

absl::Status Receiver::Start() {
  Address any;
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const char* const address : {"::", "0.0.0.0"}) {
    any = {};
    Fill(address, 0, &any);
    listener_ = socket(any.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener_ < 0) continue;
    const int off = 0;
    if (any.family() == AF_INET6) setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&any.storage), any.bytes) == 0 &&
        listen(listener_, 128) == 0) {
      break;
    }
    close(listener_);
    listener_ = -1;
  }
  if (listener_ < 0 || wake_ < 0) return service::ErrnoStatus(errno, "cannot listen for transfers");
  socklen_t bytes = sizeof any.storage;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&any.storage), &bytes);
  port_ = ntohs(any.family() == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&any.storage)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(&any.storage)->sin_port);
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void Receiver::Run() {
  struct Taken {
    int fd;
    size_t greeted;
  };
  std::vector<Taken> taken;
  std::vector<char> sink(kPieceBytes);
  std::vector<pollfd> entries;
  while (!stop_) {
    entries.clear();
    entries.push_back({wake_, POLLIN, 0});
    entries.push_back({taken.size() < kMostStreamsTaken ? listener_ : -1, POLLIN, 0});
    for (const Taken& stream : taken) entries.push_back({stream.fd, POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) break;
    for (size_t i = taken.size(); i-- > 0;) {
      if (entries[i + 2].revents == 0) continue;
      const ssize_t bytes = recv(taken[i].fd, sink.data(), sink.size(), MSG_DONTWAIT);
      bool over = bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
      // Who does not say what a tester says has come to the wrong door.
      for (ssize_t k = 0; k < bytes && taken[i].greeted < sizeof kGreeting; ++k) {
        over = over || sink[static_cast<size_t>(k)] != kGreeting[taken[i].greeted];
        ++taken[i].greeted;
      }
      if (!over) continue;
      close(taken[i].fd);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (entries[1].revents == 0) continue;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) taken.push_back({fd, 0});
  }
  for (const Taken& stream : taken) close(stream.fd);
}

}  // namespace c4::tester
