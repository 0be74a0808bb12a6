// Bad input for every call that works: each gets its code and a sentence, and nothing reaches the engine.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ApiArgs : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }

  std::string LastError(ncclComm_t comm = nullptr) { return ncclGetLastError(comm); }

  float send_[4] = {1, 2, 3, 4};
  float recv_[4] = {};
};

ncclComm_t HandleOf(uint64_t number) {
  return std::bit_cast<ncclComm_t>(number);
}

TEST_F(ApiArgs, VersionIsOfTheInterface) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, 22809);
  EXPECT_EQ(pncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_THAT(LastError(), StartsWith("ncclGetVersion: "));
}

TEST_F(ApiArgs, ErrorStringsAreNccls) {
  EXPECT_STREQ(ncclGetErrorString(ncclSuccess), "no error");
  EXPECT_STREQ(ncclGetErrorString(ncclUnhandledCudaError),
               "unhandled cuda error (run with NCCL_DEBUG=INFO for details)");
  EXPECT_STREQ(ncclGetErrorString(ncclSystemError),
               "unhandled system error (run with NCCL_DEBUG=INFO for details)");
  EXPECT_STREQ(ncclGetErrorString(ncclInternalError),
               "internal error - please report this issue to the NCCL developers");
  EXPECT_STREQ(ncclGetErrorString(ncclInvalidArgument),
               "invalid argument (run with NCCL_DEBUG=WARN for details)");
  EXPECT_STREQ(ncclGetErrorString(ncclInvalidUsage), "invalid usage (run with NCCL_DEBUG=WARN for details)");
  EXPECT_STREQ(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error");
  EXPECT_STREQ(ncclGetErrorString(ncclInProgress), "NCCL operation in progress");
  EXPECT_STREQ(ncclGetErrorString(ncclNumResults), "unknown result code");
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(-1)), "unknown result code");
}

TEST_F(ApiArgs, UniqueIdNeedsAPlace) {
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  EXPECT_EQ(LastError(), "ncclGetUniqueId: the argument uniqueId is NULL");
}

TEST_F(ApiArgs, EnginesRefusalComesThrough) {
  fake::SetAnswers({.choose = {ncclInvalidUsage, "no such engine"}});
  ncclUniqueId id = {};
  ncclComm_t comm = HandleOf(7);
  void* memory = nullptr;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidUsage);
  EXPECT_EQ(LastError(), "ncclGetUniqueId: no such engine");
  EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(ncclMemAlloc(&memory, 16), ncclInvalidUsage);

  fake::SetAnswers({.join = {ncclRemoteError, "rank 1 went away"}});
  comm = HandleOf(7);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclRemoteError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(LastError(), "ncclCommInitRank: rank 1 went away");
}

TEST_F(ApiArgs, InitRankChecksItsNumbers) {
  const ncclUniqueId id = {};
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("comm is NULL"));
  for (const auto& [ranks, rank] : {std::pair{0, 0}, {-1, 0}, {2, 2}, {2, -1}, {1, 1000}, {0, -1}}) {
    ncclComm_t comm = HandleOf(7);
    EXPECT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclInvalidArgument) << ranks << " " << rank;
    EXPECT_EQ(comm, nullptr);
    EXPECT_THAT(LastError(), StartsWith("ncclCommInitRank: "));
    EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, rank, nullptr), ncclInvalidArgument);
  }
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiArgs, PropertiesOfACommunicator) {
  const ncclComm_t comm = fake::Join(5, 3);
  int value = 0;
  EXPECT_EQ(ncclCommCount(comm, &value), ncclSuccess);
  EXPECT_EQ(value, 5);
  EXPECT_EQ(ncclCommUserRank(comm, &value), ncclSuccess);
  EXPECT_EQ(value, 3);
  EXPECT_EQ(ncclCommCuDevice(comm, &value), ncclSuccess);
  EXPECT_EQ(value, -1);  // host memory belongs to no device
  EXPECT_EQ(ncclCommCount(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommUserRank(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCuDevice(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(LastError(comm), "ncclCommGetAsyncError: the argument asyncError is NULL");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiArgs, AllReduceChecksItsArguments) {
  const ncclComm_t comm = fake::Join();
  struct Case {
    const void* send;
    void* recv;
    size_t count;
    int type;
    int reduction;
    const char* sentence;
  };
  const size_t huge = std::numeric_limits<size_t>::max();
  const Case cases[] = {
      {nullptr, recv_, 4, ncclFloat, ncclSum, "sendbuff is NULL"},
      {send_, nullptr, 4, ncclFloat, ncclSum, "recvbuff is NULL"},
      {send_, recv_, static_cast<size_t>(-1), ncclFloat, ncclSum, "negative"},
      {send_, recv_, huge / 4 + 1, ncclFloat, ncclSum, "more than memory can hold"},  // count * 4 wraps to 4
      {send_, recv_, huge / 8, ncclDouble, ncclSum, "more than memory can hold"},
      {send_, recv_, 4, 12, ncclSum, "12 is not a data type"},
      {send_, recv_, 4, -1, ncclSum, "-1 is not a data type"},
      {send_, recv_, 4, ncclFloat, 5, "5 is not a reduction"},
      {send_, recv_, 4, ncclFloat, -1, "-1 is not a reduction"},
      {send_, recv_, 4, ncclFloat, 0x7fffffff, "is not a reduction"},
  };
  for (const Case& bad : cases) {
    EXPECT_EQ(ncclAllReduce(bad.send, bad.recv, bad.count, static_cast<ncclDataType_t>(bad.type),
                            static_cast<ncclRedOp_t>(bad.reduction), comm, nullptr),
              ncclInvalidArgument)
        << bad.sentence;
    EXPECT_THAT(LastError(), HasSubstr(bad.sentence));
    EXPECT_THAT(LastError(), StartsWith("ncclAllReduce: "));
    EXPECT_EQ(LastError(comm), LastError());
  }
  EXPECT_EQ(fake::Happened(), "join 0");

  // Nothing to move needs no buffers.
  EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiArgs, AllReduceReachesTheEngineAsCalled) {
  const ncclComm_t comm = fake::Join(2, 1);
  const auto stream = reinterpret_cast<cudaStream_t>(send_);
  EXPECT_EQ(ncclAllReduce(send_, recv_, 4, ncclFloat, ncclMax, comm, stream), ncclSuccess);
  const std::vector<fake::Event> events = fake::Events();
  ASSERT_EQ(fake::Happened(), "join 1, record 1, enqueue 1");
  const Operation& operation = events[2].operation;
  EXPECT_EQ(operation.function, wire::kAllReduce);
  EXPECT_EQ(operation.send_buffer, send_);
  EXPECT_EQ(operation.recv_buffer, recv_);
  EXPECT_EQ(operation.count, 4u);
  EXPECT_EQ(operation.data_type, ncclFloat);
  EXPECT_EQ(operation.reduction, ncclMax);
  EXPECT_EQ(operation.root, -1);
  EXPECT_EQ(operation.stream, stream);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiArgs, WhatTheEngineCannotDoIsNeitherRecordedNorEnqueued) {
  const ncclComm_t comm = fake::Join();
  fake::SetAnswers({.supports = {ncclInvalidUsage, "only float sums"}});
  EXPECT_EQ(ncclAllReduce(send_, recv_, 4, ncclInt8, ncclSum, comm, nullptr), ncclInvalidUsage);
  EXPECT_EQ(LastError(), "ncclAllReduce: only float sums");
  EXPECT_EQ(fake::Happened(), "join 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiArgs, AnErrorThatCameLaterIsFoundAndEndsTheCommunicatorsUse) {
  const ncclComm_t comm = fake::Join();
  ncclResult_t error = ncclInternalError;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  EXPECT_EQ(error, ncclSuccess);
  fake::SetAnswers({.async = {ncclRemoteError, "rank 1 closed the connection"}});
  EXPECT_EQ(ncclCommGetAsyncError(comm, &error), ncclSuccess);
  EXPECT_EQ(error, ncclRemoteError);
  EXPECT_THAT(LastError(), HasSubstr("rank 1 closed the connection"));
  EXPECT_THAT(LastError(comm), HasSubstr("rank 1 closed the connection"));
  EXPECT_EQ(ncclAllReduce(send_, recv_, 4, ncclFloat, ncclSum, comm, nullptr), ncclRemoteError);
  EXPECT_EQ(fake::Happened(), "join 0");
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(ApiArgs, NullCommunicators) {
  ncclResult_t error = ncclSuccess;
  int value = 0;
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommCount(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(LastError(), "ncclCommCount: the communicator is NULL");
  EXPECT_EQ(ncclCommUserRank(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCuDevice(nullptr, &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &error), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(send_, recv_, 4, ncclFloat, ncclSum, nullptr, nullptr), ncclInvalidArgument);
}

TEST_F(ApiArgs, MemoryIsAlignedAndFreedOnce) {
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 10), ncclSuccess);
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0u);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  EXPECT_THAT(LastError(), HasSubstr("does not come from ncclMemAlloc"));
  EXPECT_EQ(ncclMemFree(send_), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);

  EXPECT_EQ(ncclMemAlloc(nullptr, 10), ncclInvalidArgument);
  memory = send_;
  EXPECT_EQ(ncclMemAlloc(&memory, 0), ncclSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(ncclMemAlloc(&memory, static_cast<size_t>(-1)), ncclInvalidArgument);
  EXPECT_EQ(memory, nullptr);
}

}  // namespace
}  // namespace c4
