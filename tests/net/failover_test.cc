// Fail-over where packets vanish: two ranks on an emulated fabric of 2 leaves and 4 spines exchange messages,
// each end in its host's network namespace, while links are cut in silence in one direction or both and heal
// again. The receiver uses each buffer again at once, with another pattern, so that a late byte would be
// seen. Needs root.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ccl/base/clock.h"
#include "ccl/transport/tcp/connect.h"
#include "fabric/emulator/command.h"
#include "fabric/emulator/fabric.h"
#include "fabric/emulator/oracle.h"

namespace c4::net_test {
namespace {

constexpr uint64_t kMs = 1000000;
constexpr uint64_t kCommunicator = 0xc4;
constexpr size_t kMessageBytes = 400000;
constexpr int kAhead = 4;

// Byte `at` of message `number`.
char ByteOf(uint64_t number, size_t at) {
  return static_cast<char>((number * 131 + at * 7 + (at >> 8)) & 0xff);
}

// One rank: what the engine has of a connection, driven by a thread in the host's namespace.
class Rank {
 public:
  Rank(std::string ns, int rank) : ns_(std::move(ns)), rank_(rank) {
    communicator_ = monitor_.OpenCommunicator({kCommunicator, 0, rank, 2, wire::kEngineHost, ""});
    ring_ = monitor_.LeaseRing();
  }
  ~Rank() { Stop(); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void Start(std::function<Result(bool* moved)> prepare, std::function<Result(bool* moved)> step,
             std::function<void(std::vector<pollfd>*)> polls) {
    thread_ =
        std::thread([this, prepare = std::move(prepare), step = std::move(step), polls = std::move(polls)] {
          fabric::InNamespace(ns_, [&]() -> absl::Status {
            bool moved = false;
            Result result = prepare(&moved);
            ready_ = true;
            std::vector<pollfd> entries;
            while (result.ok() && !stop_) {
              moved = false;
              result = step(&moved);
              if (moved) continue;
              entries.clear();
              polls(&entries);
              (void)poll(entries.data(), entries.size(), 2);
            }
            if (!result.ok()) {
              const std::lock_guard<std::mutex> lock(mutex_);
              error_ = result.message();
            }
            return absl::OkStatus();
          }).IgnoreError();
        });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  Recording recording() { return {&monitor_, &communicator_, &ring_, rank_, 1 - rank_, 0}; }
  std::string error() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }
  bool ready() const { return ready_; }

 private:
  const std::string ns_;
  const int rank_;
  Monitor monitor_{"", {2, 32, 2, 64}, JobIdentity()};
  CommunicatorRecorder communicator_;
  RingWriter ring_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  std::string error_;
  std::thread thread_;
};

class FailOverNet : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status rights = fabric::CheckRights(); !rights.ok()) GTEST_SKIP() << rights;
    spec_ = {.name = absl::StrCat("xp", getpid() % 100000), .leaves = 2, .spines = 4};
    spec_.hosts_per_leaf = 1;
    spec_.rate_mbps = 200;
    absl::StatusOr<fabric::Fabric> up = fabric::Fabric::Up(spec_);
    ASSERT_TRUE(up.ok()) << up.status();
    fabric_ = std::make_unique<fabric::Fabric>(*std::move(up));
  }
  void TearDown() override {
    if (fabric_ == nullptr) return;
    for (const auto& rank : {&sender_rank_, &receiver_rank_}) {
      if (*rank != nullptr) (*rank)->Stop();
    }
    sender_.reset();
    receiver_.reset();
    sender_rank_.reset();
    receiver_rank_.reset();
    EXPECT_TRUE(fabric::Fabric::Down(spec_.name).ok());
  }

  // Messages flow from now on.
  void Begin(uint64_t give_up_ns = 0) {
    receiver_rank_ = std::make_unique<Rank>(fabric::HostNamespace(spec_, 1), 1);
    receiver_rank_->Start([this](bool*) { return Listen(); }, [this](bool* moved) { return Receive(moved); },
                          [this](std::vector<pollfd>* polls) {
                            acceptor_->AppendPolls(polls);
                            receiver_->AppendPolls(polls);
                          });
    ASSERT_TRUE(Eventually(2000, [&] { return receiver_rank_->ready(); }));
    sender_rank_ = std::make_unique<Rank>(fabric::HostNamespace(spec_, 0), 0);
    sender_rank_->Start(
        [this, give_up_ns](bool*) {
          return tcp::ConnectSender(sender_rank_->recording(), address_, {4, 65536, 262144, true, give_up_ns},
                                    &sender_);
        },
        [this](bool* moved) { return Send(moved); },
        [this](std::vector<pollfd>* polls) { sender_->AppendPolls(polls); });
    ASSERT_TRUE(Eventually(5000, [&] { return received_ >= 20; })) << Errors();
  }
  std::string Errors() {
    return absl::StrCat("sender: ", sender_rank_->error(), "; receiver: ", receiver_rank_->error(),
                        "; received ", received_.load());
  }
  template <typename Condition>
  static bool Eventually(int ms, Condition condition) {
    for (const uint64_t until = MonotonicNs() + static_cast<uint64_t>(ms) * kMs; MonotonicNs() < until;) {
      if (condition()) return true;
      usleep(1000);
    }
    return condition();
  }
  bool MovesOn(int ms, uint64_t messages = 20) {
    const uint64_t target = received_ + messages;
    return Eventually(ms, [&] { return received_ >= target; });
  }
  std::vector<QpUse> Paths() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return paths_;
  }
  uint32_t Fences() {
    uint32_t fences = 0;
    for (const QpUse& use : Paths()) fences += use.fences;
    return fences;
  }
  // Spines that the queue pairs' data go over.
  std::set<int> Spines() {
    std::vector<fabric::FiveTuple> tuples;
    for (const QpUse& use : Paths()) {
      if (use.path.source.length == 0) continue;
      tuples.push_back({.source = fabric::HostPortAddress(spec_, 0, 0),
                        .source_port = use.path.source.port(),
                        .destination = fabric::HostPortAddress(spec_, 1, 0),
                        .destination_port = use.path.destination.port()});
    }
    std::set<int> spines;
    const absl::StatusOr<std::vector<fabric::Path>> paths = fabric::PathsOf(spec_, tuples);
    if (!paths.ok()) return spines;
    for (const fabric::Path& path : *paths) spines.insert(path.spine);
    return spines;
  }
  // Drops in silence what that leaf gets from that spine, or all that it gets (spine < 0: from all).
  void Drop(int leaf, const std::vector<int>& spines) {
    std::string script = "add table netdev xpcut\n";
    for (const int spine : spines) {
      absl::StrAppend(&script, "add chain netdev xpcut s", spine, " { type filter hook ingress device \"up",
                      spine, "\" priority -400; policy drop; }\n");
    }
    ASSERT_TRUE(fabric::RunNft({fabric::LeafNamespace(spec_, leaf), script}).ok());
  }
  void Undrop(int leaf) {
    ASSERT_TRUE(fabric::RunNft({fabric::LeafNamespace(spec_, leaf), "delete table netdev xpcut\n"}).ok());
  }

  fabric::FabricSpec spec_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::atomic<uint64_t> received_{0};

 private:
  Result Listen() {
    C4_RETURN_IF_ERROR(InterfaceAddress("=eth0", &address_));
    Fd listener;
    C4_RETURN_IF_ERROR(c4::Listen(&address_, 64, &listener));
    acceptor_ = std::make_unique<Acceptor>(std::move(listener), kCommunicator, 1, 2);
    receiver_ = std::make_unique<ReceiveConnection>(1, 0);
    buffers_.assign(kAhead, std::vector<char>(kMessageBytes, '~'));
    return Ok();
  }
  Result Receive(bool* moved) {
    bool accepted_any = false;
    C4_RETURN_IF_ERROR(acceptor_->Progress(&accepted_any));
    std::vector<Accepted> accepted;
    if (!receiver_->attached() && acceptor_->Take(0, 0, &accepted)) {
      tcp::AttachReceiver(std::move(accepted), receiver_rank_->recording(), receiver_.get());
    }
    int peer = 0;
    uint16_t channel = 0;
    for (Accepted late; acceptor_->TakeLate(&peer, &channel, &late); late = Accepted()) {
      receiver_->TakeLate(std::move(late));
    }
    while (receiver_->posted() < receiver_->completed() + kAhead) {
      const uint64_t number = receiver_->posted();
      std::vector<char>& buffer = buffers_[number % kAhead];
      // Whoever wrote here since this was handed on has written too late.
      if (std::any_of(buffer.begin(), buffer.end(), [](char c) { return c != '~'; })) {
        return Fail(ncclInternalError, "a late byte in the buffer for message %lu", number);
      }
      receiver_->Post(buffer.data(), buffer.size());
    }
    C4_RETURN_IF_ERROR(receiver_->Progress(moved));
    for (; received_ < receiver_->completed(); ++received_) {
      std::vector<char>& buffer = buffers_[received_ % kAhead];
      for (size_t at = 0; at < buffer.size(); ++at) {
        if (buffer[at] != ByteOf(received_, at)) {
          return Fail(ncclInternalError, "byte %zu of message %lu is wrong", at, received_.load());
        }
      }
      std::fill(buffer.begin(), buffer.end(), '~');
    }
    return Ok();
  }
  Result Send(bool* moved) {
    while (sender_->posted() < sender_->completed() + kAhead) {
      std::vector<char>& data = data_[sender_->posted() % kAhead];
      data.resize(kMessageBytes);
      for (size_t at = 0; at < data.size(); ++at) data[at] = ByteOf(sender_->posted(), at);
      sender_->Post(data.data(), data.size());
    }
    C4_RETURN_IF_ERROR(sender_->Progress(moved));
    const std::lock_guard<std::mutex> lock(mutex_);
    paths_ = sender_->Paths();
    return Ok();
  }

  SocketAddress address_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<ReceiveConnection> receiver_;
  std::unique_ptr<SendConnection> sender_;
  std::vector<std::vector<char>> buffers_;
  std::vector<char> data_[kAhead];
  std::mutex mutex_;
  std::vector<QpUse> paths_;
  std::unique_ptr<Rank> receiver_rank_;
  std::unique_ptr<Rank> sender_rank_;
};

TEST_F(FailOverNet, ACutSpineLinkCostsNothingButItsPath) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (const int spine : {0, 1, 2, 3}) {
    SCOPED_TRACE(spine);
    ASSERT_TRUE(fabric_->Cut(absl::StrCat("leaf0-spine", spine)).ok());
    EXPECT_TRUE(MovesOn(3000)) << Errors();
    // All four queue pairs come back on the others.
    EXPECT_TRUE(Eventually(5000, [&] {
      const std::vector<QpUse> paths = Paths();
      return std::all_of(paths.begin(), paths.end(),
                         [](const QpUse& u) { return u.state == QpState::kLive; }) &&
             !Spines().contains(spine);
    })) << Errors();
    ASSERT_TRUE(fabric_->Heal(absl::StrCat("leaf0-spine", spine)).ok());
    EXPECT_TRUE(MovesOn(3000)) << Errors();
  }
  EXPECT_GE(Fences(), 1u);
}

// Only acknowledgements and reports are lost, or only data; fence streams as it happens.
TEST_F(FailOverNet, OneDirectionIsEnough) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (const int leaf : {0, 1}) {
    for (const std::vector<int>& spines : {std::vector<int>{0}, {1, 2}, {0, 1, 3}}) {
      SCOPED_TRACE(absl::StrCat("leaf ", leaf, ", ", spines.size(), " spines"));
      ASSERT_NO_FATAL_FAILURE(Drop(leaf, spines));
      EXPECT_TRUE(MovesOn(6000)) << Errors();
      ASSERT_NO_FATAL_FAILURE(Undrop(leaf));
      EXPECT_TRUE(MovesOn(6000)) << Errors();
    }
  }
  EXPECT_GE(Fences(), 2u);
}

TEST_F(FailOverNet, WhenAllIsCutItWaitsAndGoesOnAfterwards) {
  ASSERT_NO_FATAL_FAILURE(Begin());
  ASSERT_NO_FATAL_FAILURE(Drop(1, {0, 1, 2, 3}));
  usleep(300000);
  const uint64_t before = received_;
  usleep(2000000);
  EXPECT_LE(received_, before + 1);
  EXPECT_EQ(Errors().find("cannot"), std::string::npos) << Errors();
  ASSERT_NO_FATAL_FAILURE(Undrop(1));
  EXPECT_TRUE(MovesOn(5000)) << Errors();
}

TEST_F(FailOverNet, WithoutAnyPathForTooLongItFailsAndSaysSo) {
  ASSERT_NO_FATAL_FAILURE(Begin(1000 * kMs));
  ASSERT_NO_FATAL_FAILURE(Drop(1, {0, 1, 2, 3}));
  const uint64_t begin = MonotonicNs();
  EXPECT_TRUE(Eventually(6000, [&] { return Errors().find("C4_FENCE_TIMEOUT") != std::string::npos; }))
      << Errors();
  EXPECT_GE(MonotonicNs() - begin, 1000 * kMs);
}

// Cuts and heals at random, for a while.
TEST_F(FailOverNet, ChaosLosesNoByte) {
  const unsigned seed = 20261122;
  std::mt19937 random(seed);
  ASSERT_NO_FATAL_FAILURE(Begin());
  for (int round = 0; round < 8; ++round) {
    const int leaf = static_cast<int>(random() % 2);
    std::vector<int> spines = {0, 1, 2, 3};
    std::shuffle(spines.begin(), spines.end(), random);
    spines.resize(1 + random() % 4);
    ASSERT_NO_FATAL_FAILURE(Drop(leaf, spines));
    usleep(static_cast<useconds_t>(30000 + random() % 500000));
    ASSERT_NO_FATAL_FAILURE(Undrop(leaf));
    usleep(static_cast<useconds_t>(random() % 300000));
    ASSERT_EQ(Errors().find("byte"), std::string::npos) << Errors();
  }
  EXPECT_TRUE(MovesOn(10000)) << Errors();
}

}  // namespace
}  // namespace c4::net_test
