// The network plugin as NCCL's core of every version sees it, over loopback.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/unit/ccl/plugins/nccl_core.h"

namespace c4::net::test {
namespace {

class NetPlugin : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_EQ(core_->Init(&context_), ncclSuccess); }
  void TearDown() override { EXPECT_EQ(core_->Finalize(context_), ncclSuccess); }

  const std::unique_ptr<Core> core_ = CoreOf(GetParam());
  void* context_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(EveryVersion, NetPlugin, testing::Values(8, 9, 10, 11, 12),
                         [](const auto& instance) { return "v" + std::to_string(instance.param); });

TEST_P(NetPlugin, OffersLoopbackWhereThatIsAskedFor) {
  EXPECT_STREQ(core_->name(), "C4");
  int count = 0;
  ASSERT_EQ(core_->Devices(&count), ncclSuccess);
  ASSERT_GE(count, 1);
  abi::Properties12 properties;
  ASSERT_EQ(core_->Properties(0, &properties), ncclSuccess);
  EXPECT_STREQ(properties.name, "lo");
  EXPECT_EQ(properties.pci_path, nullptr);
  EXPECT_EQ(properties.pointer_support, abi::kHostPointer);
  EXPECT_EQ(properties.registration_is_global, 0);
  EXPECT_GT(properties.speed, 0);
  EXPECT_GT(properties.max_comms, 0);
  EXPECT_GE(properties.max_recvs, 1);
  EXPECT_EQ(properties.device_type, 0);
  EXPECT_EQ(properties.members.count, 1);
  EXPECT_EQ(properties.members.devices[0], 0);
  EXPECT_GT(properties.max_p2p_bytes, 0u);
  EXPECT_LE(properties.max_p2p_bytes, size_t{1} << 40);
  EXPECT_EQ(core_->Properties(count, &properties), ncclInvalidArgument);
  EXPECT_EQ(core_->Properties(-1, &properties), ncclInvalidArgument);
}

// Sizes that are smaller than the receive, nothing at all, and many chunks.
TEST_P(NetPlugin, CarriesMessagesInOrderAndSaysHowLongTheyWere) {
  Ends ends;
  ASSERT_NO_FATAL_FAILURE(ends.Connect(core_.get(), context_));
  const size_t room = 700000;
  std::vector<char> to(room);
  for (const size_t bytes : {size_t{1}, size_t{0}, size_t{8}, size_t{131072}, room, size_t{131073}}) {
    SCOPED_TRACE(bytes);
    std::vector<char> from(bytes);
    for (size_t i = 0; i < bytes; ++i) from[i] = static_cast<char>(i * 7 + bytes);
    std::fill(to.begin(), to.end(), '~');
    void* data = to.data();
    int tag = 3;
    void* receive = abi::kOptionalCompletion;
    ASSERT_EQ(core_->Receive(ends.receive, 1, &data, &room, &tag, &receive), ncclSuccess);
    ASSERT_NE(receive, nullptr);
    ASSERT_NE(receive, abi::kOptionalCompletion);
    void* send = reinterpret_cast<void*>(0x1234);  // the core does not clear it
    ASSERT_EQ(core_->Send(ends.send, from.data(), bytes, tag, &send), ncclSuccess);
    ASSERT_NE(send, nullptr);
    std::vector<std::vector<int>> came;
    ASSERT_NO_FATAL_FAILURE(Complete(core_.get(), {send, receive}, &came));
    EXPECT_EQ(came[0][0], static_cast<int>(bytes));
    EXPECT_EQ(came[1][0], static_cast<int>(bytes));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_TRUE(
        std::all_of(to.begin() + static_cast<long>(bytes), to.end(), [](char c) { return c == '~'; }));
    int size = static_cast<int>(bytes);
    void* flush = reinterpret_cast<void*>(0x1234);
    EXPECT_EQ(core_->Flush(ends.receive, 1, &data, &size, &flush), ncclSuccess);
    EXPECT_EQ(flush, nullptr);
  }
  ends.Close(core_.get());
}

}  // namespace
}  // namespace c4::net::test
