// Ranks of the host engine as threads of this process, over loopback, for its tests. The monitor is in
// private memory; each test has its own.
#pragma once

#include <barrier>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "ccl/base/knobs.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/engine/host/communicator.h"
#include "ccl/include/c4/stream.h"
#include "tests/unit/ccl/slot_copy.h"

namespace c4::host {

inline constexpr uint64_t kSecondNs = 1000000000u;

// An environment variable for as long as its scope lasts: knobs are read when a communicator is made.
class ScopedKnob {
 public:
  ScopedKnob(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
    ForgetKnobs();
  }
  ScopedKnob(const ScopedKnob&) = delete;
  ScopedKnob& operator=(const ScopedKnob&) = delete;
  ~ScopedKnob() {
    unsetenv(name_);
    ForgetKnobs();
  }

 private:
  const char* name_;
};

// A stream that goes away with its scope.
struct OwnStream {
  OwnStream() { EXPECT_EQ(c4StreamCreate(&handle), ncclSuccess); }
  ~OwnStream() { EXPECT_EQ(c4StreamDestroy(handle), ncclSuccess); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ncclResult_t Synchronize() const { return c4StreamSynchronize(handle); }
  cudaStream_t handle = nullptr;
};

class EngineRanks : public testing::Test {
 protected:
  void SetUp() override {
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    unsetenv("NCCL_COMM_ID");
    ForgetKnobs();
  }

  static bootstrap::UniqueId NewId() {
    ncclUniqueId raw;
    bootstrap::UniqueId id{};
    EXPECT_TRUE(bootstrap::MakeUniqueId(&raw).ok());
    EXPECT_TRUE(bootstrap::ReadUniqueId(raw, &id).ok());
    return id;
  }

  // Runs `body` as each of `n` ranks, each with a communicator of its own thread, once all of them have
  // joined: a body that fails on purpose may not reach ranks that are still connecting.
  void Ranks(int n, const std::function<void(HostCommunicator&)>& body) {
    const bootstrap::UniqueId id = NewId();
    std::vector<std::thread> threads;
    std::barrier joined(n);
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        HostCommunicator communicator(&monitor_, rank, n);
        const Result result = communicator.Init(id, "test");
        joined.arrive_and_wait();
        ASSERT_TRUE(result.ok()) << result.message();
        body(communicator);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  // The same with two communicators of the same ranks.
  void RanksOfTwo(int n, const std::function<void(HostCommunicator&, HostCommunicator&)>& body) {
    const bootstrap::UniqueId ids[2] = {NewId(), NewId()};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        HostCommunicator first(&monitor_, rank, n);
        HostCommunicator second(&monitor_, rank, n);
        ASSERT_TRUE(first.Init(ids[0], "first").ok());
        ASSERT_TRUE(second.Init(ids[1], "second").ok());
        body(first, second);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  static Operation AllReduce(const float* in, float* out, size_t count, cudaStream_t stream) {
    Operation operation;
    operation.function = wire::kAllReduce;
    operation.send_buffer = in;
    operation.recv_buffer = out;
    operation.count = count;
    operation.stream = stream;
    return operation;
  }
  static Operation Send(const void* data, size_t count, int peer, cudaStream_t stream,
                        ncclDataType_t type = ncclUint8) {
    Operation operation;
    operation.function = wire::kSend;
    operation.send_buffer = data;
    operation.count = count;
    operation.data_type = type;
    operation.root = peer;
    operation.stream = stream;
    return operation;
  }
  static Operation Recv(void* buffer, size_t count, int peer, cudaStream_t stream,
                        ncclDataType_t type = ncclUint8) {
    Operation operation = Send(nullptr, count, peer, stream, type);
    operation.function = wire::kRecv;
    operation.recv_buffer = buffer;
    return operation;
  }

  // As the API layer does it: all of them together are one group.
  static Result Run(HostCommunicator& communicator, std::vector<Operation> operations) {
    for (Operation& operation : operations) {
      C4_RETURN_IF_ERROR(communicator.Supports(operation));
      operation.called_ticks = communicator.RecordCall(operation);
    }
    return communicator.Enqueue(operations.data(), operations.size());
  }
  static Result Run(HostCommunicator& communicator, const Operation& operation) {
    return Run(communicator, std::vector<Operation>{operation});
  }

  // The monitor's view of a rank; of the only communicator that it has.
  wire::CommunicatorSlot SlotOf(int rank) {
    for (uint32_t i = 0; i < 256; ++i) {
      const wire::CommunicatorSlot slot = test::CopyOf(monitor_.segment().communicator(i));
      if (slot.phase == wire::kPhaseReady && slot.rank == rank) return slot;
    }
    ADD_FAILURE() << "rank " << rank << " is in no communicator";
    return {};
  }

  Monitor monitor_{"", {256, 1024, 64, 64}, JobIdentity()};
};

}  // namespace c4::host
