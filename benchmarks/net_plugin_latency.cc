// What a job waits for a message that goes through the net plugin, beside the least that loopback allows: two
// threads send a message to and fro, each testing without a pause as NCCL's proxies do, once through the
// plugin's newest table and once over a bare socket with a read in a loop. The two take turns within one run;
// printed are medians of half a round trip and of the turns' ratios. Both processors are busy while it runs:
// on a machine that is not idle the figures say little.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/statistics.h"
#include "ccl/base/socket.h"
#include "ccl/plugins/net/identity.h"
#include "ccl/plugins/net/tables.h"

namespace c4 {
namespace {

constexpr int kTurns = 15;
constexpr int kRounds = 200;  // of a turn, or fewer of large messages

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "net_plugin_latency: %s\n", what);
  exit(1);  // NOLINT(concurrency-mt-unsafe)
}
void Check(ncclResult_t result) {
  if (result != ncclSuccess) Die("a call of the plugin failed");
}

double NowUs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// One of two that send to each other.
class End {
 public:
  virtual ~End() = default;
  virtual void Expect(char* to, size_t bytes) = 0;
  virtual void Send(char* from, size_t bytes) = 0;
  virtual void Await() = 0;  // until what is expected has come, and what was sent is gone
};

class PluginEnd : public End {
 public:
  void* send = nullptr;
  void* receive = nullptr;

  void Expect(char* to, size_t bytes) override {
    void* place = to;
    int tag = 0;
    void* nothing = nullptr;
    Check(ncclNetPlugin_v12.receive(receive, 1, &place, &bytes, &tag, &nothing, &nothing, &receiving_));
  }
  void Send(char* from, size_t bytes) override {
    do {
      Check(ncclNetPlugin_v12.send(send, from, bytes, 0, nullptr, nullptr, &sending_));
    } while (sending_ == nullptr);
  }
  void Await() override {
    int sent = sending_ == nullptr ? 1 : 0;
    int received = receiving_ == nullptr ? 1 : 0;
    int bytes = 0;
    while (sent == 0 || received == 0) {
      if (received == 0) Check(ncclNetPlugin_v12.test(receiving_, &received, &bytes));
      if (sent == 0) Check(ncclNetPlugin_v12.test(sending_, &sent, &bytes));
    }
    sending_ = receiving_ = nullptr;
  }

 private:
  void* sending_ = nullptr;
  void* receiving_ = nullptr;
};

void Connect(void* context, void** send, void** receive) {
  char handle[net::abi::kHandleBytes];
  void* listener = nullptr;
  Check(ncclNetPlugin_v12.listen(context, 0, handle, &listener));
  while (*send == nullptr || *receive == nullptr) {
    if (*send == nullptr) Check(ncclNetPlugin_v12.connect(context, 0, handle, send, nullptr));
    if (*receive == nullptr) Check(ncclNetPlugin_v12.accept(listener, receive, nullptr));
  }
}

class SocketEnd : public End {
 public:
  explicit SocketEnd(Fd fd) : fd_(std::move(fd)) {
    const int one = 1;
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  void Expect(char* to, size_t bytes) override {
    to_ = to;
    left_ = bytes;
  }
  void Send(char* from, size_t bytes) override {
    from_ = from;
    unsent_ = bytes;
  }
  void Await() override {
    while (left_ > 0 || unsent_ > 0) {
      if (unsent_ > 0) {
        const ssize_t sent = send(fd_.get(), from_, unsent_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) Die("a socket broke");
        if (sent > 0) from_ += sent, unsent_ -= static_cast<size_t>(sent);
      }
      if (left_ > 0) {
        const ssize_t got = recv(fd_.get(), to_, left_, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) Die("a socket broke");
        if (got > 0) to_ += got, left_ -= static_cast<size_t>(got);
      }
    }
  }

 private:
  const Fd fd_;
  char* to_ = nullptr;
  char* from_ = nullptr;
  size_t left_ = 0;
  size_t unsent_ = 0;
};

std::pair<Fd, Fd> SocketPair() {
  SocketAddress address;
  Fd listener;
  if (!ParseAddress("127.0.0.1:0", &address).ok() || !Listen(&address, 1, &listener).ok()) Die("no socket");
  Fd one(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(one.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    Die("no connection");
  }
  const int flags = fcntl(listener.get(), F_GETFL);
  fcntl(listener.get(), F_SETFL, flags & ~O_NONBLOCK);
  Fd other(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!other.valid()) Die("no connection");
  return {std::move(one), std::move(other)};
}

// Half a round trip, us.
double Turn(End* near, End* far, size_t bytes) {
  const int rounds = bytes > 65536 ? kRounds / 10 : kRounds;
  std::thread other([&] {
    std::vector<char> out(bytes), in(bytes);
    for (int i = 0; i < rounds; ++i) {
      far->Expect(in.data(), bytes);
      far->Await();
      far->Send(out.data(), bytes);
      far->Await();
    }
  });
  std::vector<char> out(bytes), in(bytes);
  const double begin_us = NowUs();
  for (int i = 0; i < rounds; ++i) {
    near->Expect(in.data(), bytes);
    near->Send(out.data(), bytes);
    near->Await();
  }
  const double us = NowUs() - begin_us;
  other.join();
  return us / rounds / 2;
}

}  // namespace
}  // namespace c4

int main() {
  using namespace c4;
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);  // NOLINT(concurrency-mt-unsafe): no threads yet
  setenv("NCCL_NET", "C4", 1);            // NOLINT(concurrency-mt-unsafe)
  setenv("C4_CONTROL", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  void* context = nullptr;
  net::abi::CommConfig config{-1};
  Check(ncclNetPlugin_v12.init(&context, 1, &config, nullptr, nullptr));
  PluginEnd near, far;
  Connect(context, &near.send, &far.receive);
  Connect(context, &far.send, &near.receive);
  auto [one, other] = SocketPair();
  SocketEnd bare_near(std::move(one)), bare_far(std::move(other));
  printf("    bytes   bare socket us     plugin us   ratio\n");
  for (const size_t bytes : {size_t{8}, size_t{1024}, size_t{65536}, size_t{1048576}}) {
    std::vector<double> bare, ours, ratio;
    for (int turn = 0; turn < kTurns; ++turn) {
      bare.push_back(Turn(&bare_near, &bare_far, bytes));
      ours.push_back(Turn(&near, &far, bytes));
      ratio.push_back(ours.back() / bare.back());
    }
    printf("%9zu  %15.1f  %12.1f  %6.2f\n", bytes, Median(bare), Median(ours), Median(ratio));
  }
  return 0;
}
