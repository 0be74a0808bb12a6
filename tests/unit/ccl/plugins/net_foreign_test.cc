// A plugin of somebody else's under its default name: it is found, adapted to the version that NCCL asks for,
// does all the work, and stands in the records. The test runs once for each version of that plugin.
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "ccl/monitor/monitor.h"
#include "ccl/plugins/net/foreign_net.h"
#include "tests/unit/ccl/plugins/nccl_core.h"

namespace c4::net::test {
namespace {

int PluginVersion() {
  const char* const value = getenv("FAKE_NET_VERSION");  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? 0 : atoi(value);
}

std::vector<const wire::QueuePairSlot*> Recorded(wire::Direction direction) {
  std::vector<const wire::QueuePairSlot*> found;
  Segment& segment = Monitor::Get().segment();
  for (uint32_t i = 0; i < segment.header().queue_pairs_used; ++i) {
    const wire::QueuePairSlot& slot = segment.queue_pair(i);
    if (slot.phase == wire::kPhaseReady && slot.direction == direction) found.push_back(&slot);
  }
  return found;
}

class NetForeign : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    PrepareTables();
    ASSERT_EQ(core_->Init(&context_), ncclSuccess);
  }
  void TearDown() override { EXPECT_EQ(core_->Finalize(context_), ncclSuccess); }

  const std::unique_ptr<Core> core_ = CoreOf(GetParam());
  void* context_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(EveryVersion, NetForeign, testing::Values(8, 9, 10, 11, 12),
                         [](const auto& instance) { return "v" + std::to_string(instance.param); });

TEST_P(NetForeign, ItsNameAndDevicesAreTheTables) {
  EXPECT_STREQ(core_->name(), "Fake") << "NCCL compares it with NCCL_NET";
  int count = 0;
  ASSERT_EQ(core_->Devices(&count), ncclSuccess);
  EXPECT_EQ(count, 3);
  abi::Properties12 properties;
  ASSERT_EQ(core_->Properties(2, &properties), ncclSuccess);
  EXPECT_STREQ(properties.name, "fake0");
  EXPECT_EQ(properties.guid, 102u);
  EXPECT_EQ(properties.pointer_support, abi::kHostPointer | abi::kCudaPointer);
  EXPECT_EQ(properties.speed, 400000);
  EXPECT_EQ(properties.max_comms, 17);
  EXPECT_EQ(properties.members.count, 1);
  EXPECT_EQ(properties.members.devices[0], 2);
  const bool both_know = GetParam() >= 9 && PluginVersion() >= 9;
  EXPECT_EQ(properties.max_p2p_bytes, size_t{1} << (both_know ? 40 : 30));
}

TEST_P(NetForeign, WhatItCannotDoTheTablesDoNotOffer) {
  EXPECT_EQ(ncclNetPlugin_v8.consumed, nullptr);
  EXPECT_EQ(ncclNetPlugin_v10.device_memory, nullptr);
  EXPECT_EQ(ncclNetPlugin_v9.make_virtual, nullptr);
  EXPECT_EQ(ncclNetPlugin_v12.make_virtual, nullptr);
  EXPECT_EQ(ncclNetPlugin_v11.set_attributes, nullptr);
}

TEST_P(NetForeign, ItCarriesTheMessagesAndTheyAreCounted) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_, 1));
  EXPECT_TRUE(Recorded(wire::kDirectionSend).empty()) << "until something is sent";
  void* memory = nullptr;
  ASSERT_EQ(core_->Register(ends.send, nullptr, 1, abi::kCudaPointer, &memory), ncclSuccess);
  EXPECT_EQ(core_->Deregister(ends.receive, memory), ncclSuccess) << "both ends are one pipe of the fake's";
  std::string a = "first";
  std::string b = "the second message";
  std::vector<char> to_a(100);
  std::vector<char> to_b(50);
  void* data[] = {to_a.data(), to_b.data()};
  const size_t rooms[] = {to_a.size(), to_b.size()};
  int tags[] = {4, 9};
  void* receive = nullptr;
  ASSERT_EQ(core_->Receive(ends.receive, 2, data, rooms, tags, &receive), ncclSuccess);
  ASSERT_NE(receive, nullptr);
  std::vector<void*> requests = {receive, nullptr, nullptr};
  for (int i = 0; i < 2; ++i) {
    std::string& from = i == 0 ? b : a;
    void*& request = requests[i == 0 ? 1 : 2];
    int calls = 0;
    while (request == nullptr) {
      ASSERT_EQ(core_->Send(ends.send, from.data(), from.size(), i == 0 ? 9 : 4, &request), ncclSuccess);
      ASSERT_LT(++calls, 10);
    }
    EXPECT_EQ(calls, 2) << "the fake says so once";
  }
  std::vector<std::vector<int>> came;
  ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), requests, &came));
  EXPECT_EQ(came[0][0], static_cast<int>(a.size()));
  EXPECT_EQ(came[0][1], static_cast<int>(b.size()));
  EXPECT_EQ(memcmp(to_a.data(), a.data(), a.size()), 0);
  EXPECT_EQ(memcmp(to_b.data(), b.data(), b.size()), 0);
  int sizes[] = {5, 18};
  void* flush = nullptr;
  ASSERT_EQ(core_->Flush(ends.receive, 2, data, sizes, &flush), ncclSuccess);
  ASSERT_NE(flush, nullptr);
  ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), {flush}));

  for (const wire::Direction direction : {wire::kDirectionSend, wire::kDirectionReceive}) {
    const auto slots = Recorded(direction);
    ASSERT_EQ(slots.size(), 1u);
    const wire::QueuePairSlot& slot = *slots[0];
    EXPECT_EQ(slot.transport, wire::kTransportPlugin);
    EXPECT_EQ(slot.peer, direction == wire::kDirectionReceive ? 4 : -1);
    EXPECT_EQ(slot.wanted_messages, 2u);
    EXPECT_EQ(slot.done_messages, 2u);
    EXPECT_EQ(slot.wanted_bytes, a.size() + b.size());
    EXPECT_EQ(slot.done_bytes, a.size() + b.size());
    EXPECT_EQ(slot.moved_bytes, a.size() + b.size());
    EXPECT_EQ(slot.posted_messages, 2u);
    EXPECT_EQ(slot.completed_messages, 2u);
  }
  ends.Close(core_.get());
  EXPECT_TRUE(Recorded(wire::kDirectionSend).empty());
}

TEST(NetForeignLibrary, WhatIsNoPluginIsSaidSo) {
  std::string what;
  EXPECT_EQ(OpenForeign("/nonexistent/libnccl-net.so", &what), nullptr);
  EXPECT_NE(what.find("nonexistent"), std::string::npos);
  EXPECT_EQ(OpenForeign("libm.so.6", &what), nullptr);
  EXPECT_NE(what.find("version 6 to 12"), std::string::npos);
  EXPECT_NE(OpenForeign(kDefaultPluginName, &what), nullptr);
  EXPECT_EQ(what, "ncclNetPlugin_v" + std::to_string(PluginVersion()));
}

}  // namespace
}  // namespace c4::net::test
