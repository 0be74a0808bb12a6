// Operations of the host engine on buffers in GPU memory (engine_collectives_test has all collectives): sends
// and receives, and what is said where it cannot be, on a double of CUDA's driver.
#include "ccl/engine/host/device_stage.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/double/gpu_memory.h"
#include "tests/unit/ccl/engine_ranks.h"

namespace c4::host {
namespace {

using test::GpuMemory;
using test::LoadFakeDriver;
using test::OfFakeDriver;
using testing::HasSubstr;

constexpr size_t kBytes = 300000;

class DeviceStageTest : public EngineRanks {
 protected:
  void SetUp() override {
    EngineRanks::SetUp();
    ASSERT_NE(LoadFakeDriver(), nullptr);
  }
  void TearDown() override {
    for (const char* call : {"cuMemHostAlloc", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"}) Fail(call, 0, 0);
  }
  static void Fail(const char* call, int code, int times) {
    OfFakeDriver<fake_cuda::FailCalls>("fake_cuda_fail")(call, code, times);
  }
  static uint64_t Calls(const char* call) {
    return OfFakeDriver<fake_cuda::CountCalls>("fake_cuda_calls")(call);
  }
  // An all-reduce of one rank, and what it says.
  std::string AllReduceOfOne(const GpuMemory& memory, size_t floats) {
    std::string said;
    Ranks(1, [&](HostCommunicator& communicator) {
      const OwnStream stream;
      auto* const buffer = reinterpret_cast<float*>(memory.used());
      Operation operation = AllReduce(buffer, buffer, floats, stream.handle);
      operation.called_ticks = communicator.RecordCall(operation);
      EXPECT_TRUE(communicator.Enqueue(&operation, 1).ok());
      (void)stream.Synchronize();
      said = communicator.AsyncError().message();
    });
    return said;
  }
};

// In a group: both ways at a time, and to itself, from and into every kind.
TEST_F(DeviceStageTest, SendsAndReceivesMeet) {
  for (unsigned kinds = 0; kinds < 16; ++kinds) {
    Ranks(2, [&](HostCommunicator& communicator) {
      const int me = communicator.rank();
      const unsigned own = kinds >> (2 * me);
      const GpuMemory from(kBytes, (own & 1) != 0, me);
      const GpuMemory to(2 * kBytes, (own & 2) != 0, me);
      for (size_t i = 0; i < kBytes; ++i) from.seen()[i] = static_cast<char>(i * 7 + static_cast<size_t>(me));
      const OwnStream stream;
      Operation operations[] = {
          Send(from.used(), kBytes, 1 - me, stream.handle), Recv(to.used(), kBytes, 1 - me, stream.handle),
          Send(from.used(), kBytes, me, stream.handle), Recv(to.used() + kBytes, kBytes, me, stream.handle)};
      for (Operation& operation : operations) operation.called_ticks = communicator.RecordCall(operation);
      ASSERT_TRUE(communicator.Enqueue(operations, std::size(operations)).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess) << communicator.AsyncError().message();
      for (size_t i = 0; i < kBytes; ++i) {
        ASSERT_EQ(to.seen()[i], static_cast<char>(i * 7 + static_cast<size_t>(1 - me))) << kinds << " " << i;
      }
      EXPECT_EQ(memcmp(to.seen() + kBytes, from.seen(), kBytes), 0);
      EXPECT_TRUE(communicator.Finalize().ok());
    });
    if (HasFatalFailure()) return;
  }
}

// What stands in for them is kept: growing operations take it a few times only.
TEST_F(DeviceStageTest, PinnedMemoryIsUsedAgain) {
  const GpuMemory memory(kBytes, true);
  const uint64_t before = Calls("cuMemHostAlloc");
  Ranks(1, [&](HostCommunicator& communicator) {
    const OwnStream stream;
    for (size_t floats = 1; floats < kBytes / 4; floats += 1000) {
      auto* const buffer = reinterpret_cast<float*>(memory.used());
      Operation operation = AllReduce(buffer, buffer, floats, stream.handle);
      operation.called_ticks = communicator.RecordCall(operation);
      ASSERT_TRUE(communicator.Enqueue(&operation, 1).ok());
      ASSERT_EQ(stream.Synchronize(), ncclSuccess);
    }
  });
  EXPECT_LE(Calls("cuMemHostAlloc") - before, 20u);
  EXPECT_GT(Calls("cuMemHostAlloc"), before);
}

TEST_F(DeviceStageTest, HostMemoryIsUsedInPlace) {
  const GpuMemory memory(kBytes, false);
  const uint64_t before = Calls("cuMemcpyDtoH_v2");
  EXPECT_EQ(AllReduceOfOne(memory, kBytes / 4), "");
  EXPECT_EQ(Calls("cuMemcpyDtoH_v2"), before);
}

TEST_F(DeviceStageTest, SaysWhatItNeedsWhereThatIsTooMuch) {
  const ScopedKnob most("C4_STAGE_BYTES", "65536");
  const GpuMemory memory(kBytes, true);
  EXPECT_EQ(AllReduceOfOne(memory, 16384), "");
  EXPECT_THAT(AllReduceOfOne(memory, 16385), HasSubstr("C4_STAGE_BYTES allows 65536"));
}

TEST_F(DeviceStageTest, SaysWhichCallFailed) {
  const GpuMemory memory(kBytes, true);
  Fail("cuMemHostAlloc", 2, 1);
  EXPECT_THAT(AllReduceOfOne(memory, 100), HasSubstr("bytes of pinned memory of the host"));
  Fail("cuMemcpyDtoH_v2", 700, 1);
  EXPECT_THAT(AllReduceOfOne(memory, 100), HasSubstr("cuMemcpyDtoH"));
  Fail("cuMemcpyHtoD_v2", 700, 1);
  EXPECT_THAT(AllReduceOfOne(memory, 100), HasSubstr("cuMemcpyHtoD"));
  EXPECT_THAT(AllReduceOfOne(memory, kBytes), HasSubstr("cuMemcpyDtoH")) << "more than there is";
  EXPECT_EQ(AllReduceOfOne(memory, 100), "");
}

}  // namespace
}  // namespace c4::host
