// How long goodput is missing after a path died (docs/benchmarks.md): one connection of four queue pairs
// between two hosts of an emulated fabric of 200 Mbit/s, through the transport itself. In each round a link
// is cut in silence that carries some of the queue pairs, or a host's port loses its carrier (two planes);
// prints how long it took until 90 % of what remains came through again, and the medians. Exit code 1 when
// they exceed 150 and 50 ms, 2 when nothing could be measured. Needs root.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "benchmarks/statistics.h"
#include "ccl/base/clock.h"
#include "ccl/transport/carrier.h"
#include "ccl/transport/tcp/connect.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"

namespace c4 {
namespace {

constexpr uint64_t kMs = 1000000;
constexpr size_t kMessageBytes = 524288;
constexpr int kAhead = 4;
constexpr double kRateMbps = 200;
constexpr uint64_t kSteadyMs = 150;  // so long in order: what comes later has other reasons
constexpr int kWindowMs = 50;        // over which goodput is taken
constexpr double kTargetCutMs = 150;
constexpr double kTargetCarrierMs = 50;

// Bytes that had come at each millisecond, by the receiver's thread.
class Arrivals {
 public:
  void Note(uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    at_.emplace_back(MonotonicNs(), bytes);
  }
  uint64_t Until(uint64_t ns) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto after = std::upper_bound(at_.begin(), at_.end(), ns,
                                        [](uint64_t t, const auto& entry) { return t < entry.first; });
    return after == at_.begin() ? 0 : std::prev(after)->second;
  }
  double Mbps(uint64_t from_ns, uint64_t to_ns) {
    return static_cast<double>(Until(to_ns) - Until(from_ns)) * 8000 / static_cast<double>(to_ns - from_ns);
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, uint64_t>> at_;
};

// Both ranks, each on a thread in its host's namespace.
class Flow {
 public:
  Flow(const fabric::FabricSpec& spec, int planes) : spec_(spec), planes_(planes) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  ~Flow() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    sender_.reset();
    receiver_.reset();
  }
  bool Start() {
    receive_ = recording(1);
    send_ = recording(0);
    Run(
        spec_.hosts_per_leaf, [this] { return Listen(); }, [this](bool* moved) { return Receive(moved); },
        [this](std::vector<pollfd>* polls) {
          acceptor_->AppendPolls(polls);
          receiver_->AppendPolls(polls);
        });
    for (int i = 0; i < 2000 && !listens_; ++i) usleep(1000);
    Run(
        0, [this] { return Connect(); }, [this](bool* moved) { return Send(moved); },
        [this](std::vector<pollfd>* polls) {
          sender_->AppendPolls(polls);
          if (carrier_.fd() >= 0) polls->push_back({carrier_.fd(), POLLIN, 0});
        });
    for (int i = 0; i < 5000 && arrivals.Until(UINT64_MAX) == 0; ++i) usleep(1000);
    return arrivals.Until(UINT64_MAX) != 0;
  }
  std::vector<QpUse> Paths() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return paths_;
  }

  Arrivals arrivals;

 private:
  Recording recording(int rank) { return {&monitor_, &communicator_, &ring_, rank, 1 - rank, 0}; }
  void Run(int host, std::function<Result()> prepare, std::function<Result(bool*)> step,
           std::function<void(std::vector<pollfd>*)> polls) {
    threads_.emplace_back([=, this] {
      fabric::InNamespace(fabric::HostNamespace(spec_, host), [&]() -> absl::Status {
        Result result = prepare();
        std::vector<pollfd> entries;
        while (result.ok() && !stop_) {
          bool moved = false;
          result = step(&moved);
          if (moved) continue;
          entries.clear();
          polls(&entries);
          (void)poll(entries.data(), entries.size(), 3);
        }
        if (!result.ok()) fprintf(stderr, "failover: %s\n", result.message().c_str());
        return absl::OkStatus();
      }).IgnoreError();
    });
  }
  SocketAddress Address(int host, int plane, uint16_t port) const {
    SocketAddress address;
    (void)ParseAddress(fabric::HostPortAddress(spec_, host, plane) + ":" + std::to_string(port), &address);
    return address;
  }
  Result Listen() {
    SocketAddress all;
    C4_RETURN_IF_ERROR(ParseAddress("0.0.0.0:0", &all));
    Fd listener;
    C4_RETURN_IF_ERROR(c4::Listen(&all, 64, &listener));
    port_ = all.port();
    acceptor_ = std::make_unique<Acceptor>(std::move(listener), 0, 1, 2);
    receiver_ = std::make_unique<ReceiveConnection>(1, 0);
    buffers_.assign(kAhead, std::vector<char>(kMessageBytes));
    listens_ = true;
    return Ok();
  }
  Result Connect() {
    carrier_.Open();
    std::vector<QpPath> paths;
    for (int i = 0; i < 4; ++i) {
      const int plane = i % planes_;
      paths.push_back({Address(0, plane, 0), Address(spec_.hosts_per_leaf, plane, port_)});
    }
    return tcp::ConnectSender(send_, paths, {4, 131072, 524288, true, 0}, &sender_);
  }
  Result Receive(bool* moved) {
    bool accepted_any = false;
    C4_RETURN_IF_ERROR(acceptor_->Progress(&accepted_any));
    std::vector<Accepted> accepted;
    if (!receiver_->attached() && acceptor_->Take(0, 0, &accepted)) {
      tcp::AttachReceiver(std::move(accepted), receive_, receiver_.get());
    }
    int peer = 0;
    uint16_t channel = 0;
    for (Accepted late; acceptor_->TakeLate(&peer, &channel, &late); late = Accepted()) {
      receiver_->TakeLate(std::move(late));
    }
    while (receiver_->posted() < receiver_->completed() + kAhead) {
      receiver_->Post(buffers_[receiver_->posted() % kAhead].data(), kMessageBytes);
    }
    C4_RETURN_IF_ERROR(receiver_->Progress(moved));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      const wire::QueuePairSlot& slot = monitor_.segment().queue_pair(i);
      if (slot.direction == wire::kDirectionReceive) bytes += slot.moved_bytes;
    }
    arrivals.Note(bytes);
    return Ok();
  }
  Result Send(bool* moved) {
    for (const SocketAddress& address : carrier_.TakeLost()) sender_->LoseAddress(address);
    while (sender_->posted() < sender_->completed() + kAhead) sender_->Post(data_.data(), data_.size());
    C4_RETURN_IF_ERROR(sender_->Progress(moved));
    const std::lock_guard<std::mutex> lock(mutex_);
    paths_ = sender_->Paths();
    return Ok();
  }

  const fabric::FabricSpec spec_;
  const int planes_;
  Monitor monitor_{"", {2, 32, 2, 64}, JobIdentity()};
  CommunicatorRecorder communicator_ = monitor_.OpenCommunicator({});
  RingWriter ring_;
  Recording send_;
  Recording receive_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> listens_{false};
  uint16_t port_ = 0;
  Carrier carrier_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<ReceiveConnection> receiver_;
  std::unique_ptr<SendConnection> sender_;
  std::vector<std::vector<char>> buffers_;
  std::vector<char> data_ = std::vector<char>(kMessageBytes);
  std::mutex mutex_;
  std::vector<QpUse> paths_;
  std::vector<std::thread> threads_;
};

// How many queue pairs each spine carries.
std::vector<int> OnSpines(const fabric::FabricSpec& spec, Flow* flow) {
  std::vector<int> count(static_cast<size_t>(spec.spines));
  std::vector<fabric::FiveTuple> tuples;
  for (const QpUse& use : flow->Paths()) {
    if (use.path.source.length == 0) continue;
    tuples.push_back({.source = fabric::HostPortAddress(spec, 0, 0),
                      .source_port = use.path.source.port(),
                      .destination = fabric::HostPortAddress(spec, spec.hosts_per_leaf, 0),
                      .destination_port = use.path.destination.port()});
  }
  const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec, tuples);
  if (!paths.ok()) return count;
  for (const fabric::Path& path : *paths) {
    if (path.spine >= 0) ++count[static_cast<size_t>(path.spine)];
  }
  return count;
}

// Milliseconds from `cut_ns` until a window begins from which on 90 % of `remains_mbps` came; negative:
// never, 0: it has not fallen below.
double RecoveryMs(Arrivals* arrivals, uint64_t cut_ns, uint64_t end_ns, double remains_mbps) {
  const uint64_t window = kWindowMs * kMs;
  uint64_t last_low = 0;
  for (uint64_t at = cut_ns; at + window <= end_ns; at += kMs) {
    if (arrivals->Mbps(at, at + window) < 0.9 * remains_mbps) {
      last_low = at;
    } else if (at - std::max(last_low, cut_ns) > kSteadyMs * kMs) {
      break;
    }
  }
  if (last_low == 0) return 0;
  return last_low + 2 * window > end_ns ? -1 : static_cast<double>(last_low + kMs - cut_ns) / 1e6;
}

struct Outcome {
  std::vector<double> ms;
  std::vector<double> goodput;
};

Outcome Measure(bool carrier, int rounds) {
  Outcome outcome;
  fabric::FabricSpec spec{.name = "xpf" + std::to_string(getpid() % 100000), .leaves = 2, .spines = 4};
  spec.hosts_per_leaf = 4;
  spec.rate_mbps = kRateMbps;
  if (carrier) {
    spec.ports = fabric::Ports::kPlanes;
    spec.leaves = 4;
    spec.hosts_per_leaf = 2;
  }
  const absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec);
  if (!up.ok()) {
    fprintf(stderr, "failover: %s\n", std::string(up.status().message()).c_str());
    return outcome;
  }
  fabric::Fabric fabric = *up;
  {
    Flow flow(spec, carrier ? 2 : 1);
    if (!flow.Start()) rounds = 0;
    for (int round = 1; round <= rounds; ++round) {
      usleep(2500000);  // until all is in order again
      std::string target = "host0-leaf0";
      int carried = 2;
      if (!carrier) {
        const std::vector<int> on = OnSpines(spec, &flow);
        const auto most = std::max_element(on.begin(), on.end());
        carried = *most;
        target = "leaf0-spine" + std::to_string(most - on.begin());
      }
      const uint64_t before_ns = MonotonicNs();
      const double before = flow.arrivals.Mbps(before_ns - 1000 * kMs, before_ns);
      const absl::Status broken = carrier ? fabric.Break(target, 0) : fabric.Cut(target);
      usleep(1200000);
      const uint64_t end_ns = MonotonicNs();
      const double after = flow.arrivals.Mbps(end_ns - 500 * kMs, end_ns);
      (void)fabric.Heal(target);
      if (!broken.ok()) continue;
      // Of one port, what it carried before or the line's goodput; of two, one remains.
      const double remains = carrier ? before / 2 : before;
      const double ms = RecoveryMs(&flow.arrivals, before_ns, end_ns, remains);
      printf("round %d: %s of %d queue pairs; goodput before %.0f, after %.0f Mbit/s; back after %.0f ms\n",
             round, target.c_str(), carried, before, after, ms);
      fflush(stdout);
      if (ms >= 0) outcome.ms.push_back(ms);
      outcome.goodput.push_back(after / before);
    }
  }
  (void)fabric::Fabric::Down(spec.name);
  return outcome;
}

int Main(int argc, char** argv) {
  int rounds = 9;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = atoi(argv[++i]);
    } else {
      fputs(
          "failover [--rounds N]\nhow long goodput is missing after a silent cut, and after a lost carrier\n",
          stderr);
      return 2;
    }
  }
  bool met = true;
  bool any = false;
  for (const bool carrier : {false, true}) {
    const Outcome outcome = Measure(carrier, rounds);
    if (outcome.ms.empty()) continue;
    any = true;
    const double ms = Median(outcome.ms);
    const double target = carrier ? kTargetCarrierMs : kTargetCutMs;
    printf("%s: 90 %% of what remains after %.0f ms (median of %zu of %d, longest %.0f; target %.0f)\n",
           carrier ? "local carrier lost, 2 planes" : "silent cut of a spine link", ms, outcome.ms.size(),
           rounds, *std::max_element(outcome.ms.begin(), outcome.ms.end()), target);
    met = met && ms <= target;
  }
  return !any ? 2 : met ? 0 : 1;
}

}  // namespace
}  // namespace c4

int main(int argc, char** argv) {
  return c4::Main(argc, argv);
}
