// How queue pairs of RDMA choose their paths, on a library that only remembers what it was asked for.
#include "ccl/transport/verbs/rc.h"

#include <cerrno>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/transport/verbs/source_port.h"

namespace c4::verbs {
namespace {

using testing::ElementsAre;

// What the device does, and what it was asked for. One at a time.
struct FakeDevice {
  int port_error = EOPNOTSUPP;  // of setting a source port
  int bond_error = EOPNOTSUPP;  // of asking for the bond's port
  std::vector<uint16_t> ports;
  std::vector<uint8_t> bond_ports;
  std::vector<abi::QpAttributes> changes;

  abi::Device device{};
  abi::Context context{};
  abi::ProtectionDomain domain{};
  abi::CompletionChannel channel{};
  abi::CompletionQueue queue{};
  abi::QueuePair pair{};
  Library library;
};
FakeDevice* fake = nullptr;

class RcTest : public testing::Test {
 protected:
  RcTest() {
    fake = &fake_;
    events_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    fake_.context.async_fd = fake_.channel.fd = events_.get();
    fake_.context.device = &fake_.device;
    fake_.pair.number = 77;
    Library& library = fake_.library;
    library.open_device = [](abi::Device*) { return &fake->context; };
    library.close_device = [](abi::Context*) { return 0; };
    library.query_device = [](abi::Context*, abi::DeviceAttributes* attributes) {
      attributes->port_count = 1;
      return 0;
    };
    library.query_port = [](abi::Context*, uint8_t, abi::PortAttributes* attributes) {
      attributes->state = abi::kPortActive;
      attributes->link_layer = abi::kLinkEthernet;
      attributes->active_mtu = 3;
      return 0;
    };
    library.alloc_domain = [](abi::Context*) { return &fake->domain; };
    library.dealloc_domain = [](abi::ProtectionDomain*) { return 0; };
    library.create_channel = [](abi::Context*) { return &fake->channel; };
    library.destroy_channel = [](abi::CompletionChannel*) { return 0; };
    library.create_queue = [](abi::Context*, int, void*, abi::CompletionChannel*, int) {
      return &fake->queue;
    };
    library.destroy_queue = [](abi::CompletionQueue*) { return 0; };
    library.create_queue_pair = [](abi::ProtectionDomain*, abi::QpInit*) { return &fake->pair; };
    library.destroy_queue_pair = [](abi::QueuePair*) { return 0; };
    library.modify_queue_pair = [](abi::QueuePair*, abi::QpAttributes* attributes, int) {
      fake->changes.push_back(*attributes);
      return 0;
    };
    library.set_source_port = [](abi::QueuePair*, uint16_t port) {
      if (fake->port_error == 0) fake->ports.push_back(port);
      return fake->port_error;
    };
    library.query_lag_port = [](abi::QueuePair*, uint8_t*, uint8_t*) { return fake->bond_error; };
    library.set_lag_port = [](abi::QueuePair*, uint8_t port) {
      fake->bond_ports.push_back(port);
      return 0;
    };
  }

  std::unique_ptr<RcQueuePair> Make(bool ethernet = true) {
    std::unique_ptr<Device> device;
    EXPECT_TRUE(Device::Open(&fake_.library, &fake_.device, &device).ok());
    UsablePort port{std::move(device), {}, {}};
    port.port = {1, true, ethernet, 9, 3, 100000};
    std::unique_ptr<RcQueuePair> pair;
    EXPECT_TRUE(RcQueuePair::Create(port, Settings(), RcQueuePair::Limits(), &pair).ok());
    return pair;
  }

  static End Peer(uint32_t flow_label = 0, bool ethernet = true) {
    End end{};
    end.number = 5;
    end.gid[15] = 1;
    end.lid = 4;
    end.mtu = 3;
    end.link_layer = ethernet ? abi::kLinkEthernet : abi::kLinkInfiniBand;
    end.flow_label = flow_label;
    return end;
  }

  FakeDevice fake_;
  Fd events_;
};

TEST_F(RcTest, APortIsSetByTheProviderWhereItCan) {
  fake_.port_error = 0;
  const auto pair = Make();
  ASSERT_TRUE(pair->WishPort(50000).ok());
  ASSERT_TRUE(pair->Connect(Peer()).ok());
  EXPECT_THAT(fake_.ports, ElementsAre(50000));
  EXPECT_EQ(pair->steering(), Steering::kByPort);
  EXPECT_EQ(pair->source_port(), 50000);
}

// The provider's answer is believed: without the call, the label that the queue pair was connected with
// counts.
TEST_F(RcTest, ElseByTheFlowLabelItWasConnectedWith) {
  const auto pair = Make();
  ASSERT_TRUE(pair->WishPort(50001).ok());
  EXPECT_EQ(SourcePortOf(pair->end().flow_label), 50001);
  ASSERT_TRUE(pair->Connect(Peer()).ok());
  EXPECT_EQ(pair->steering(), Steering::kByLabel);
  ASSERT_EQ(fake_.changes.size(), 3u);  // made, ready to receive, ready to send
  EXPECT_EQ(SourcePortOf(fake_.changes[1].address.route.flow_label), 50001);
}

TEST_F(RcTest, AcknowledgementsTakeThePeersPort) {
  const auto pair = Make();
  ASSERT_TRUE(pair->Connect(Peer(FlowLabelOf(60000))).ok());
  EXPECT_EQ(pair->source_port(), 60000);
  EXPECT_EQ(SourcePortOf(fake_.changes[1].address.route.flow_label), 60000);
}

TEST_F(RcTest, ALiveQueuePairPausesToTakeAnotherLabel) {
  const auto pair = Make();
  ASSERT_TRUE(pair->WishPort(50001).ok());
  ASSERT_TRUE(pair->Connect(Peer()).ok());
  fake_.changes.clear();
  ASSERT_TRUE(pair->Steer(50002).ok());
  ASSERT_EQ(fake_.changes.size(), 3u);
  EXPECT_EQ(fake_.changes[0].state, abi::kSendDrained);
  EXPECT_EQ(SourcePortOf(fake_.changes[1].address.route.flow_label), 50002);
  EXPECT_EQ(fake_.changes[2].state, abi::kReadyToSend);
  EXPECT_EQ(pair->source_port(), 50002);
}

TEST_F(RcTest, WhereThereIsABondQueuePairsAlternate) {
  fake_.bond_error = 0;
  for (uint32_t index = 0; index < 4; ++index) {
    const auto pair = Make();
    pair->WishBondPort(index);
    ASSERT_TRUE(pair->Connect(Peer()).ok());
    EXPECT_EQ(pair->bond_port(), 1 + index % 2);
  }
  EXPECT_THAT(fake_.bond_ports, ElementsAre(1, 2, 1, 2));
}

TEST_F(RcTest, WithoutABondNothingIsChanged) {
  const auto pair = Make();
  pair->WishBondPort(1);
  ASSERT_TRUE(pair->Connect(Peer()).ok());
  EXPECT_TRUE(fake_.bond_ports.empty());
  EXPECT_EQ(pair->bond_port(), 0);
}

TEST_F(RcTest, InfiniBandHasNoPortToWishFor) {
  const auto pair = Make(false);
  EXPECT_EQ(pair->WishPort(50000).code(), ncclInvalidArgument);
  ASSERT_TRUE(pair->Connect(Peer(0, false)).ok());
  EXPECT_EQ(pair->steering(), Steering::kNone);
  EXPECT_EQ(fake_.changes[1].address.destination_lid, 4);
}

TEST(SourcePortTest, ThePortsThatAnybodyPicksAreOfRoceAndFarApart) {
  std::set<uint16_t> ports;
  for (uint32_t number = 17; number < 17 + 256; ++number) {
    EXPECT_TRUE(CanBeSourcePort(AnyPort(number)));
    ports.insert(AnyPort(number));
  }
  EXPECT_GT(ports.size(), 250u);
}

}  // namespace
}  // namespace c4::verbs
