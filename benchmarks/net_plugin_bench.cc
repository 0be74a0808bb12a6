// What NCCL's calls cost beside the transport itself: a message over one loopback connection, once through
// the table of the newest version (receive, send, and tests until both are done), once with the same steps on
// the connection's two ends. The two take turns within one run, so that whatever else the machine does falls
// on both; what is printed is the median of the differences of neighbours, a message and a call, in the
// thread's own processor time: neither way waits for anybody else. "in vain" is a test of a receive for which
// nothing comes, which is most of what NCCL does.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "benchmarks/statistics.h"
#include "ccl/plugins/net/identity.h"
#include "ccl/plugins/net/tables.h"
#include "ccl/transport/acceptor.h"
#include "ccl/transport/tcp/connect.h"

namespace c4 {
namespace {

constexpr int kPairs = 4000;
// Of a turn: so few that the plugin's own thread takes it for driven all the time, as NCCL drives it.
constexpr int kMessages = 5;

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "net_plugin_bench: %s\n", what);
  exit(1);  // NOLINT(concurrency-mt-unsafe)
}
void Check(const Result& result) {
  if (!result.ok()) Die(result.message().c_str());
}
void Check(ncclResult_t result) {
  if (result != ncclSuccess) Die("a call of the plugin failed");
}

double ThreadNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Both give the calls that were made.
class Direct {
 public:
  Direct() : identity_(net::TakeIdentity()), receiver_(1, 0) {
    SocketAddress address;
    Check(ParseAddress("127.0.0.1:0", &address));
    Fd listener;
    Check(Listen(&address, 64, &listener));
    acceptor_.emplace(std::move(listener), 7, 1, 2);
    Check(tcp::ConnectSender({identity_.monitor, identity_.communicator, &ring_, 0, 1, 0, 7}, address,
                             KnobShape(), &sender_));
    std::vector<Accepted> accepted;
    bool moved = false;
    while (!acceptor_->Take(0, 0, &accepted)) {
      Check(sender_->Progress(&moved));
      Check(acceptor_->Progress(&moved));
    }
    tcp::AttachReceiver(std::move(accepted), {identity_.monitor, identity_.communicator, &ring_, 1, 0, 0, 7},
                        &receiver_);
  }
  int Message(char* data, char* place, size_t bytes) {
    bool moved = false;
    int calls = 2;
    receiver_.Post(place, bytes);
    Check(receiver_.Progress(&moved));
    sender_->Post(data, bytes);
    Check(sender_->Progress(&moved));
    bool sent = false;
    bool received = false;
    while (!sent || !received) {
      if (!received) {
        Check(receiver_.Progress(&moved));
        received = receiver_.completed() == receiver_.posted();
        ++calls;
      }
      if (!sent) {
        Check(sender_->Progress(&moved));
        sent = sender_->completed() == sender_->posted();
        ++calls;
      }
    }
    return calls;
  }
  // Asks so often whether a message has come before it is sent.
  void Vain(char* data, char* place, int times) {
    bool moved = false;
    receiver_.Post(place, 8);
    Check(receiver_.Progress(&moved));
    const double begin_ns = ThreadNs();
    for (int i = 0; i < times; ++i) Check(receiver_.Progress(&moved));
    vain_ns = ThreadNs() - begin_ns;
    sender_->Post(data, 8);
    while (receiver_.completed() != receiver_.posted() || sender_->completed() != sender_->posted()) {
      Check(sender_->Progress(&moved));
      Check(receiver_.Progress(&moved));
    }
  }
  double vain_ns = 0;
  void TakeLate() {
    bool moved = false;
    Check(acceptor_->Progress(&moved));
    int peer = 0;
    uint16_t channel = 0;
    for (Accepted late; acceptor_->TakeLate(&peer, &channel, &late); late = Accepted()) {
      receiver_.TakeLate(std::move(late));
    }
  }

 private:
  const net::Identity identity_;
  RingWriter ring_;
  std::optional<Acceptor> acceptor_;
  std::unique_ptr<SendConnection> sender_;
  ReceiveConnection receiver_;
};

class Plugin {
 public:
  Plugin() {
    char handle[net::abi::kHandleBytes];
    void* context = nullptr;
    net::abi::CommConfig config{-1};
    Check(table_.init(&context, 1, &config, nullptr, nullptr));
    Check(table_.listen(context, 0, handle, &listen_));
    while (send_ == nullptr || receive_ == nullptr) {
      if (send_ == nullptr) Check(table_.connect(context, 0, handle, &send_, nullptr));
      if (receive_ == nullptr) Check(table_.accept(listen_, &receive_, nullptr));
    }
  }
  int Message(char* data, char* place, size_t bytes) {
    int calls = 2;
    void* to = place;
    int tag = 0;
    void* nothing = nullptr;
    void* receive = nullptr;
    void* send = nullptr;
    Check(table_.receive(receive_, 1, &to, &bytes, &tag, &nothing, &nothing, &receive));
    Check(table_.send(send_, data, bytes, 0, nullptr, nullptr, &send));
    int sent = 0;
    int received = 0;
    int size = 0;
    while (sent == 0 || received == 0) {
      if (received == 0) {
        Check(table_.test(receive, &received, &size));
        ++calls;
      }
      if (sent == 0) {
        Check(table_.test(send, &sent, &size));
        ++calls;
      }
    }
    return calls;
  }
  void Vain(char* data, char* place, int times) {
    void* to = place;
    size_t bytes = 8;
    int tag = 0;
    int done = 0;
    void* nothing = nullptr;
    void* receive = nullptr;
    void* send = nullptr;
    Check(table_.receive(receive_, 1, &to, &bytes, &tag, &nothing, &nothing, &receive));
    const double begin_ns = ThreadNs();
    for (int i = 0; i < times; ++i) Check(table_.test(receive, &done, nullptr));
    vain_ns = ThreadNs() - begin_ns;
    Check(table_.send(send_, data, 8, 0, nullptr, nullptr, &send));
    for (int sent = done = 0; sent == 0 || done == 0;) {
      if (sent == 0) Check(table_.test(send, &sent, nullptr));
      if (done == 0) Check(table_.test(receive, &done, nullptr));
    }
  }
  double vain_ns = 0;

 private:
  net::abi::Net12& table_ = ncclNetPlugin_v12;
  void* listen_ = nullptr;
  void* send_ = nullptr;
  void* receive_ = nullptr;
};

struct Turn {
  double ns;     // a message
  double calls;  // a message
};

template <typename Way>
Turn Measure(Way* way, std::vector<char>* data, std::vector<char>* place) {
  int calls = 0;
  const double begin_ns = ThreadNs();
  for (int i = 0; i < kMessages; ++i) calls += way->Message(data->data(), place->data(), data->size());
  const double ns = ThreadNs() - begin_ns;
  return {ns / kMessages, static_cast<double>(calls) / kMessages};
}

void Run(Direct* direct, Plugin* plugin, size_t bytes) {
  std::vector<char> data(bytes, 'x');
  std::vector<char> place(bytes);
  std::vector<double> transport;
  std::vector<double> calls;
  std::vector<double> a_message;
  std::vector<double> a_call;
  for (int i = 0; i < kPairs; ++i) {
    direct->TakeLate();
    Turn first{};
    Turn second{};
    if (i % 2 == 0) {
      first = Measure(direct, &data, &place);
      second = Measure(plugin, &data, &place);
    } else {
      second = Measure(plugin, &data, &place);
      first = Measure(direct, &data, &place);
    }
    transport.push_back(first.ns);
    calls.push_back(second.calls);
    a_message.push_back(second.ns - first.ns);
    // By the cost of a call, so that one test more or less is none of the plugin's.
    a_call.push_back(second.ns / second.calls - first.ns / first.calls);
  }
  std::mt19937 random(1);
  const Interval interval = BootstrapMedian(a_call, &random);
  printf("%9zu  %12.0f  %12.0f  %8.1f  %8.1f  [%.1f, %.1f]\n", bytes, Median(transport), Median(a_message),
         Median(calls), Median(a_call), interval.low, interval.high);
}

void RunVain(Direct* direct, Plugin* plugin) {
  char data[8] = {};
  char place[8];
  std::vector<double> transport;
  std::vector<double> more;
  for (int i = 0; i < kPairs; ++i) {
    direct->TakeLate();
    if (i % 2 == 0) direct->Vain(data, place, kMessages);
    plugin->Vain(data, place, kMessages);
    if (i % 2 == 1) direct->Vain(data, place, kMessages);
    transport.push_back(direct->vain_ns / kMessages);
    more.push_back((plugin->vain_ns - direct->vain_ns) / kMessages);
  }
  std::mt19937 random(1);
  const Interval interval = BootstrapMedian(more, &random);
  printf("  in vain  %12.0f  %12s  %8.1f  %8.1f  [%.1f, %.1f]\n", Median(transport), "", 1.0, Median(more),
         interval.low, interval.high);
}

}  // namespace
}  // namespace c4

int main() {
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);  // NOLINT(concurrency-mt-unsafe): no threads yet
  setenv("NCCL_NET", "C4", 1);            // NOLINT(concurrency-mt-unsafe)
  setenv("C4_CONTROL", "0", 1);           // NOLINT(concurrency-mt-unsafe)
  c4::Direct direct;
  c4::Plugin plugin;
  printf("    bytes  transport ns   plugin + ns     calls  a call + ns (95 %% of the median)\n");
  c4::RunVain(&direct, &plugin);
  for (const size_t bytes : {size_t{8}, size_t{4096}, size_t{131072}, size_t{1048576}}) {
    c4::Run(&direct, &plugin, bytes);
  }
  return 0;
}
