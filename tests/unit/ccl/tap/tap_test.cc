// A program that looks verbs up, on a double of libibverbs: its answers are the same under the tap, and the
// tap's records are what it did.
#include "ccl/tap/tap.h"

#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <vector>

#include "ccl/tap/verbs_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace c4::tap {
namespace {

// What a client of verbs has: functions that it looked up by itself.
struct Client {
  explicit Client(bool tapped) {
    const std::string doubles = std::string(getenv("C4_BUILD_DIR")) + "/tests/doubles/";
    void* const looker = dlopen((doubles + "fake_looker_now.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(looker, nullptr) << dlerror();
    if (tapped) {
      const Result installed = Install(looker);
      EXPECT_TRUE(installed.ok()) << installed.message();
    }
    const auto look = reinterpret_cast<void* (*)(void*, const char*)>(dlsym(looker, "looker_dlsym"));
    void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(verbs, nullptr) << dlerror();
    const auto find = [&](const char* symbol, auto* function) {
      *reinterpret_cast<void**>(function) = look(verbs, symbol);
      EXPECT_NE(*function, nullptr) << symbol;
    };
    find("ibv_get_device_list", &get_device_list);
    find("ibv_open_device", &open_device);
    find("ibv_close_device", &close_device);
    find("ibv_query_gid", &query_gid);
    find("ibv_alloc_pd", &alloc_pd);
    find("ibv_reg_mr", &reg_mr);
    find("ibv_create_cq", &create_cq);
    find("ibv_destroy_cq", &destroy_cq);
    find("ibv_create_qp", &create_qp);
    find("ibv_destroy_qp", &destroy_qp);
    find("ibv_modify_qp", &modify_qp);
    int count = 0;
    context = open_device(get_device_list(&count)[0]);
    domain = alloc_pd(context);
    region = reg_mr(domain, memory, kBytes, abi::kLocalWrite | abi::kRemoteWrite);
    EXPECT_TRUE(Uninstall().ok());
  }
  ~Client() {
    close_device(context);
    free(memory);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  struct Pair {
    abi::CompletionQueue* queue;
    abi::QueuePair* pair;
  };
  Pair Make() {
    abi::CompletionQueue* const queue = create_cq(context, 64, nullptr, nullptr, 0);
    abi::QpInit init{};
    init.send_queue = init.receive_queue = queue;
    init.capacity = {16, 16, 1, 1, 0};
    init.type = abi::kReliableConnection;
    return {queue, create_qp(domain, &init)};
  }
  void Connect(const Pair& from, const Pair& to, uint32_t flow_label) {
    abi::QpAttributes attributes{};
    attributes.state = abi::kReadyToReceive;
    attributes.peer_number = to.pair->number;
    attributes.address.is_global = 1;
    attributes.address.port_number = 1;
    attributes.address.route.flow_label = flow_label;
    query_gid(context, 1, 0, &attributes.address.route.destination);
    EXPECT_EQ(modify_qp(from.pair, &attributes, abi::kMaskState | abi::kMaskAddress | abi::kMaskPeerQpNumber),
              0);
    attributes = {};
    attributes.state = abi::kReadyToSend;
    EXPECT_EQ(modify_qp(from.pair, &attributes, abi::kMaskState), 0);
  }
  int Write(const Pair& pair, uint64_t id, uint32_t bytes, bool signaled, int opcode = abi::kOpWrite,
            uint32_t key_off = 0) {
    abi::Piece piece{reinterpret_cast<uint64_t>(memory), bytes, region->local_key};
    abi::SendRequest request{};
    request.id = id;
    request.pieces = &piece;
    request.piece_count = 1;
    request.opcode = opcode;
    request.flags = signaled ? abi::kSignaled : 0u;
    request.remote_address = reinterpret_cast<uint64_t>(memory) + 65536;
    request.remote_key = region->remote_key + key_off;
    abi::SendRequest* failed = nullptr;
    return context->operations.post_send(pair.pair, &request, &failed);
  }
  int Receive(const Pair& pair, uint64_t id) {
    abi::Piece piece{reinterpret_cast<uint64_t>(memory), 4096, region->local_key};
    abi::ReceiveRequest request{id, nullptr, &piece, 1};
    abi::ReceiveRequest* failed = nullptr;
    return context->operations.post_receive(pair.pair, &request, &failed);
  }
  std::vector<abi::Completion> Poll(const Pair& pair) const {
    std::vector<abi::Completion> completions(16);
    const int polled = context->operations.poll_completions(pair.queue, 16, completions.data());
    completions.resize(static_cast<size_t>(std::max(polled, 0)));
    return completions;
  }

  abi::Device** (*get_device_list)(int*) = nullptr;
  abi::Context* (*open_device)(abi::Device*) = nullptr;
  int (*close_device)(abi::Context*) = nullptr;
  int (*query_gid)(abi::Context*, uint8_t, int, abi::Gid*) = nullptr;
  abi::ProtectionDomain* (*alloc_pd)(abi::Context*) = nullptr;
  abi::MemoryRegion* (*reg_mr)(abi::ProtectionDomain*, void*, size_t, int) = nullptr;
  abi::CompletionQueue* (*create_cq)(abi::Context*, int, void*, abi::CompletionChannel*, int) = nullptr;
  int (*destroy_cq)(abi::CompletionQueue*) = nullptr;
  abi::QueuePair* (*create_qp)(abi::ProtectionDomain*, abi::QpInit*) = nullptr;
  int (*destroy_qp)(abi::QueuePair*) = nullptr;
  int (*modify_qp)(abi::QueuePair*, abi::QpAttributes*, int) = nullptr;

  static constexpr size_t kBytes = 1 << 17;
  char* const memory = static_cast<char*>(aligned_alloc(4096, kBytes));
  abi::Context* context = nullptr;
  abi::ProtectionDomain* domain = nullptr;
  abi::MemoryRegion* region = nullptr;
};

class TapTest : public ::testing::Test {
 protected:
  TapTest() : monitor_("", {.communicators = 4, .queue_pairs = 16}, {}) { SetMonitor(&monitor_); }
  ~TapTest() override { SetMonitor(nullptr); }

  Monitor monitor_;
};

TEST_F(TapTest, ItsRecordsAreWhatTheProgramDid) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(client.Receive(b, 100 + i), 0);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(client.Write(a, i, 4096, false), 0);
  ASSERT_EQ(client.Write(a, 7, 1000, true, abi::kOpWriteWithImmediate), 0);
  const std::vector<abi::Completion> sent = client.Poll(a);
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(sent.back().id, 7U);
  ASSERT_EQ(client.Poll(b).size(), 1U);
  WatchedQueuePair* const from = QueuePairs().Find(a.pair);
  WatchedQueuePair* const to = QueuePairs().Find(b.pair);
  ASSERT_TRUE(from != nullptr && to != nullptr);
  const wire::QueuePairSlot sends = from->sends();
  EXPECT_EQ(sends.posted_messages, 4U);
  EXPECT_EQ(sends.posted_bytes, 3U * 4096 + 1000);
  EXPECT_EQ(sends.completed_messages, 4U);
  EXPECT_EQ(sends.completed_bytes, 3U * 4096 + 1000);
  uint64_t timed = 0;
  for (const uint32_t count : sends.latency_histogram) timed += count;
  EXPECT_GE(timed, 1U);
  const wire::QueuePairSlot receives = to->receives();
  EXPECT_EQ(receives.posted_messages, 4U);
  EXPECT_EQ(receives.completed_messages, 1U);
  EXPECT_EQ(receives.completed_bytes, 1000U);
  client.destroy_qp(a.pair);
  client.destroy_qp(b.pair);
}

TEST_F(TapTest, TheAnswersAreThoseOfTheUntappedCall) {
  for (const bool tapped : {false, true}) {
    Client client(tapped);
    const Client::Pair a = client.Make();
    const Client::Pair b = client.Make();
    client.Connect(a, b, 0);
    client.Connect(b, a, 0);
    ASSERT_EQ(client.Write(a, 1, 64, true, abi::kOpWrite, 999), 0) << tapped;  // of a key that nobody has
    const std::vector<abi::Completion> completions = client.Poll(a);
    ASSERT_EQ(completions.size(), 1U) << tapped;
    EXPECT_EQ(completions[0].status, abi::kRemoteAccess) << tapped;
    WatchedQueuePair* const watched = QueuePairs().Find(a.pair);
    ASSERT_EQ(watched != nullptr, tapped);
    if (tapped) {
      EXPECT_EQ(watched->sends().error, static_cast<uint64_t>(EACCES));
    }
    client.destroy_qp(a.pair);
    client.destroy_qp(b.pair);
  }
}

TEST_F(TapTest, OnceItIsKnownWhoseItIsItStandsInTheSegment) {
  Client client(true);
  const Client::Pair a = client.Make();
  const Client::Pair b = client.Make();
  client.Connect(a, b, 5);
  client.Connect(b, a, 6);
  ASSERT_EQ(client.Write(a, 1, 8192, true), 0);
  client.Poll(a);
  ObservedCommunicators communicators(&monitor_);
  ObservedCommunicator* const mine = communicators.Open({.id = 9, .rank = 0, .rank_count = 2});
  ObservedCommunicator* const other = communicators.Open({.id = 10, .rank = 0, .rank_count = 2});
  AttributePosted(mine, 1);
  EXPECT_FALSE(QueuePairs().Find(a.pair)->AttributeTo(other, 0));
  AttributePosted(other, 0);  // nothing was posted since
  ASSERT_EQ(client.Write(a, 2, 8192, true), 0);
  client.Poll(a);
  const wire::QueuePairSlot& slot = monitor_.segment().queue_pair(0);
  EXPECT_EQ(slot.peer, 1);
  EXPECT_EQ(slot.communicator_slot, 0U);
  EXPECT_EQ(slot.index, 1);
  EXPECT_EQ(slot.transport, wire::kTransportVerbs);
  EXPECT_EQ(slot.queue_pair_number, a.pair->number);
  EXPECT_EQ(slot.completed_bytes, 2U * 8192);
  EXPECT_EQ(slot.remote.port, 4791);
  EXPECT_NE(slot.local.port, 0);
  client.destroy_qp(a.pair);
  EXPECT_EQ(slot.phase, static_cast<uint32_t>(wire::kPhaseDestroyed));
  client.destroy_qp(b.pair);
}

TEST_F(TapTest, ManyThreadsPostPollAndDestroy) {
  Client client(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client] {
      for (int round = 0; round < 50; ++round) {
        const Client::Pair a = client.Make();
        const Client::Pair b = client.Make();
        client.Connect(a, b, 1);
        client.Connect(b, a, 1);
        for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(client.Write(a, i, 700, true), 0);
        client.Poll(a);
        EXPECT_EQ(QueuePairs().Find(a.pair)->sends().completed_messages, 8U);
        client.destroy_qp(a.pair);
        client.destroy_qp(b.pair);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace c4::tap
