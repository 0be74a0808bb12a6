#include "fabric/emulator/raw_flow.h"

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "fabric/emulator/command.h"

namespace c4::fabric {
namespace {

constexpr size_t kBufferBytes = 1 << 18;

sockaddr_in Address(const std::string& address, int port) {
  sockaddr_in found{};
  found.sin_family = AF_INET;
  found.sin_port = htons(static_cast<uint16_t>(port));
  (void)inet_pton(AF_INET, address.c_str(), &found.sin_addr);  // one of the fabric's
  return found;
}

absl::Status Bound(const std::string& address, int port, int* fd) {
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const int one = 1;
  (void)setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  const sockaddr_in at = Address(address, port);
  if (bind(*fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, address + ":" + std::to_string(port));
}

}  // namespace

RawFlow::RawFlow(const FabricSpec& spec, FiveTuple tuple) : spec_(spec), tuple_(std::move(tuple)) {}

RawFlow::~RawFlow() {
  stop_ = true;
  // Ends what the threads are in.
  if (sender_ >= 0) shutdown(sender_, SHUT_RDWR);
  if (receiver_ >= 0) shutdown(receiver_, SHUT_RD);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  // Without an end of the connection that waits: the same ports may be wanted again at once.
  const linger reset{1, 0};
  for (const int fd : {sender_, receiver_}) {
    if (fd < 0) continue;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
  }
}

absl::Status RawFlow::Open() {
  const auto ns = [&](const std::string& address) {
    return HostNamespace(spec_, HostOfAddress(spec_, address));
  };
  int listener = -1;
  absl::Status opened = InNamespace(
      ns(tuple_.destination), [&] { return Bound(tuple_.destination, tuple_.destination_port, &listener); });
  if (opened.ok() && listen(listener, 1) != 0) opened = absl::ErrnoToStatus(errno, "listen");
  if (opened.ok()) {
    opened =
        InNamespace(ns(tuple_.source), [&] { return Bound(tuple_.source, tuple_.source_port, &sender_); });
  }
  const sockaddr_in to = Address(tuple_.destination, tuple_.destination_port);
  if (opened.ok() && connect(sender_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    opened = absl::ErrnoToStatus(errno, "connect " + TupleText(tuple_));
  }
  if (opened.ok()) {
    receiver_ = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (receiver_ < 0) opened = absl::ErrnoToStatus(errno, "accept");
  }
  if (listener >= 0) close(listener);
  return opened;
}

void RawFlow::Start() {
  threads_[0] = std::thread([this] {
    const std::vector<char> data(kBufferBytes, 'x');
    while (!stop_ && send(sender_, data.data(), data.size(), MSG_NOSIGNAL) > 0) continue;
  });
  threads_[1] = std::thread([this] {
    std::vector<char> data(kBufferBytes);
    for (ssize_t got = 1; !stop_ && got > 0;) {
      got = recv(receiver_, data.data(), data.size(), 0);
      if (got > 0) bytes_ += static_cast<uint64_t>(got);
    }
  });
}

absl::StatusOr<std::vector<double>> GoodputOf(const FabricSpec& spec, const std::vector<FiveTuple>& tuples,
                                              int warm_ms, int measured_ms) {
  std::vector<std::unique_ptr<RawFlow>> flows;
  for (const FiveTuple& tuple : tuples) {
    flows.push_back(std::make_unique<RawFlow>(spec, tuple));
    if (absl::Status opened = flows.back()->Open(); !opened.ok()) return opened;
  }
  for (const auto& flow : flows) flow->Start();
  std::this_thread::sleep_for(std::chrono::milliseconds(warm_ms));
  std::vector<double> mbps;
  mbps.reserve(flows.size());
  const auto since = std::chrono::steady_clock::now();
  for (const auto& flow : flows) mbps.push_back(-static_cast<double>(flow->received_bytes()));
  std::this_thread::sleep_for(std::chrono::milliseconds(measured_ms));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - since;
  for (size_t i = 0; i < flows.size(); ++i) {
    mbps[i] = (mbps[i] + static_cast<double>(flows[i]->received_bytes())) * 8e-6 / took.count();
  }
  return mbps;
}

}  // namespace c4::fabric
