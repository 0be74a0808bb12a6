// Every operation: it reaches the engine as it was called, and its arguments are checked before.
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 4;
constexpr int kRank = 1;

struct Arguments {
  const void* send;
  void* recv;
  size_t count = 4;
  int type = ncclFloat;  // also numbers that are none
  int reduction = ncclSum;
  int root = kRank;
};

enum class Needs { kNever, kOnRoot, kAlways };

struct Call {
  const char* name;
  wire::Function function;
  bool reduces;
  bool rooted;
  bool blocks;  // a buffer holds `count` elements for each rank
  Needs send;
  Needs recv;
  std::function<ncclResult_t(const Arguments&, ncclComm_t, cudaStream_t)> invoke;
};

ncclDataType_t Type(const Arguments& arguments) {
  return static_cast<ncclDataType_t>(arguments.type);
}
ncclRedOp_t Reduction(const Arguments& arguments) {
  return static_cast<ncclRedOp_t>(arguments.reduction);
}

const std::vector<Call>& Calls() {
  using A = Arguments;
  static const auto* const calls = new std::vector<Call>{
      {"ncclAllReduce", wire::kAllReduce, true, false, false, Needs::kAlways, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllReduce(a.send, a.recv, a.count, Type(a), Reduction(a), comm, stream);
       }},
      {"ncclReduce", wire::kReduce, true, true, false, Needs::kAlways, Needs::kOnRoot,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclReduce(a.send, a.recv, a.count, Type(a), Reduction(a), a.root, comm, stream);
       }},
      {"ncclBroadcast", wire::kBroadcast, false, true, false, Needs::kOnRoot, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclBroadcast(a.send, a.recv, a.count, Type(a), a.root, comm, stream);
       }},
      {"ncclAllGather", wire::kAllGather, false, false, true, Needs::kAlways, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclAllGather(a.send, a.recv, a.count, Type(a), comm, stream);
       }},
      {"ncclReduceScatter", wire::kReduceScatter, true, false, true, Needs::kAlways, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclReduceScatter(a.send, a.recv, a.count, Type(a), Reduction(a), comm, stream);
       }},
      {"ncclAlltoAll", wire::kAlltoAll, false, false, true, Needs::kAlways, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclAlltoAll(a.send, a.recv, a.count, Type(a), comm, stream);
       }},
      {"ncclGather", wire::kGather, false, true, true, Needs::kAlways, Needs::kOnRoot,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclGather(a.send, a.recv, a.count, Type(a), a.root, comm, stream);
       }},
      {"ncclScatter", wire::kScatter, false, true, true, Needs::kOnRoot, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclScatter(a.send, a.recv, a.count, Type(a), a.root, comm, stream);
       }},
      {"ncclSend", wire::kSend, false, true, false, Needs::kAlways, Needs::kNever,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclSend(a.send, a.count, Type(a), a.root, comm, stream);
       }},
      {"ncclRecv", wire::kRecv, false, true, false, Needs::kNever, Needs::kAlways,
       [](const A& a, ncclComm_t comm, cudaStream_t stream) {
         return ncclRecv(a.recv, a.count, Type(a), a.root, comm, stream);
       }},
  };
  return *calls;
}

class ApiOperations : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::Reset();
    comm_ = fake::Join(kRanks, kRank);
    fake::Reset();
  }
  void TearDown() override { EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess); }

  void ExpectRefused(const Call& call, const Arguments& arguments, const char* sentence) {
    EXPECT_EQ(call.invoke(arguments, comm_, nullptr), ncclInvalidArgument) << call.name << ": " << sentence;
    EXPECT_THAT(ncclGetLastError(comm_), StartsWith(std::string(call.name) + ": "));
    EXPECT_THAT(ncclGetLastError(comm_), HasSubstr(sentence)) << call.name;
    EXPECT_EQ(fake::Happened(), "") << call.name;
  }
  void ExpectTaken(const Call& call, const Arguments& arguments) {
    EXPECT_EQ(call.invoke(arguments, comm_, nullptr), ncclSuccess)
        << call.name << ": " << ncclGetLastError(nullptr);
    EXPECT_EQ(fake::Happened(), "record 1, enqueue 1") << call.name;
    fake::Reset();
  }

  ncclComm_t comm_ = nullptr;
  float send_[16] = {};
  float recv_[16] = {};
  const Arguments good_{send_, recv_};
};

TEST_F(ApiOperations, EachReachesTheEngineAsCalled) {
  const auto stream = reinterpret_cast<cudaStream_t>(send_);
  for (const Call& call : Calls()) {
    fake::Reset();
    Arguments arguments{send_, recv_, 3, ncclInt64, ncclMax, 2};
    EXPECT_EQ(call.invoke(arguments, comm_, stream), ncclSuccess) << call.name;
    ASSERT_EQ(fake::Happened(), "record 1, enqueue 1") << call.name;
    const Operation operation = fake::Events()[1].operation;
    EXPECT_EQ(operation.function, call.function) << call.name;
    EXPECT_EQ(operation.send_buffer, call.send == Needs::kNever ? nullptr : send_) << call.name;
    EXPECT_EQ(operation.recv_buffer, call.recv == Needs::kNever ? nullptr : recv_) << call.name;
    EXPECT_EQ(operation.count, 3u) << call.name;
    EXPECT_EQ(operation.data_type, ncclInt64) << call.name;
    EXPECT_EQ(operation.reduction, call.reduces ? ncclMax : ncclSum) << call.name;
    EXPECT_EQ(operation.root, call.rooted ? 2 : -1) << call.name;
    EXPECT_EQ(operation.stream, stream) << call.name;
    EXPECT_FALSE(operation.scales) << call.name;
  }
}

TEST_F(ApiOperations, BcastIsTheBroadcastInPlace) {
  EXPECT_EQ(ncclBcast(recv_, 4, ncclUint8, 3, comm_, nullptr), ncclSuccess);
  const Operation operation = fake::Events()[1].operation;
  EXPECT_EQ(operation.function, wire::kBroadcast);
  EXPECT_EQ(operation.send_buffer, recv_);
  EXPECT_EQ(operation.recv_buffer, recv_);
  EXPECT_EQ(operation.root, 3);
  EXPECT_EQ(ncclBcast(nullptr, 4, ncclUint8, 3, comm_, nullptr), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm_), StartsWith("ncclBcast: "));
}

TEST_F(ApiOperations, BuffersAreNeededWhereTheyAreUsed) {
  for (const Call& call : Calls()) {
    for (const int root : {kRank, kRank + 1}) {
      Arguments without_send = good_;
      without_send.send = nullptr;
      without_send.root = root;
      Arguments without_recv = good_;
      without_recv.recv = nullptr;
      without_recv.root = root;
      const auto needed = [&](Needs needs) {
        return needs == Needs::kAlways || (needs == Needs::kOnRoot && root == kRank);
      };
      if (needed(call.send)) {
        ExpectRefused(call, without_send, "sendbuff is NULL");
      } else {
        ExpectTaken(call, without_send);
      }
      if (needed(call.recv)) {
        ExpectRefused(call, without_recv, "recvbuff is NULL");
      } else {
        ExpectTaken(call, without_recv);
      }
    }
    ExpectTaken(call, {nullptr, nullptr, 0});  // nothing to move needs no buffers
  }
}

TEST_F(ApiOperations, RootsAndPeersAreRanks) {
  for (const Call& call : Calls()) {
    for (const int root : {-1, kRanks, INT32_MAX, INT32_MIN}) {
      Arguments arguments = good_;
      arguments.root = root;
      if (call.rooted) {
        ExpectRefused(call, arguments, "is not a rank of the communicator (0 to 3 are)");
      } else {
        ExpectTaken(call, arguments);
      }
    }
  }
}

TEST_F(ApiOperations, TypesReductionsAndCounts) {
  for (const Call& call : Calls()) {
    for (const int type : {-1, 12, INT32_MAX}) {
      Arguments arguments = good_;
      arguments.type = type;
      ExpectRefused(call, arguments, "is not a data type");
    }
    for (int type = 0; type < ncclNumTypes; ++type) {
      Arguments arguments = good_;
      arguments.type = type;
      ExpectTaken(call, arguments);
    }
    for (const int reduction : {-1, 5, INT32_MAX}) {
      Arguments arguments = good_;
      arguments.reduction = reduction;
      if (call.reduces) ExpectRefused(call, arguments, "is not a reduction");
    }
    Arguments arguments = good_;
    arguments.reduction = ncclAvg;
    ExpectTaken(call, arguments);
    arguments.count = SIZE_MAX;
    ExpectRefused(call, arguments, "negative");
    arguments.count = PTRDIFF_MAX / sizeof(float) + 1;
    ExpectRefused(call, arguments, "more than memory can hold");
    // Fits for one rank, and not for all.
    arguments.count = PTRDIFF_MAX / sizeof(float) / kRanks + 1;
    if (call.blocks) {
      ExpectRefused(call, arguments, "for each of 4 ranks");
    } else {
      ExpectTaken(call, arguments);
    }
    arguments.count = PTRDIFF_MAX / sizeof(float) / kRanks;
    ExpectTaken(call, arguments);
  }
}

TEST_F(ApiOperations, FormsInPlace) {
  for (const Call& call : Calls()) {
    Arguments arguments = good_;
    arguments.send = recv_;
    if (call.function == wire::kAlltoAll) {
      ExpectRefused(call, arguments, "no form in place");
    } else {
      ExpectTaken(call, arguments);
    }
    arguments.send = recv_ + kRank * 4;
    ExpectTaken(call, arguments);
  }
}

TEST_F(ApiOperations, WhatTheEngineCannotDoIsItsOwnAnswer) {
  fake::SetAnswers({.supports = {ncclInvalidUsage, "not today"}});
  for (const Call& call : Calls()) {
    EXPECT_EQ(call.invoke(good_, comm_, nullptr), ncclInvalidUsage);
    EXPECT_EQ(std::string(ncclGetLastError(comm_)), std::string(call.name) + ": not today");
  }
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiOperations, GroupsTakeAllOfThem) {
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (const Call& call : Calls()) EXPECT_EQ(call.invoke(good_, comm_, nullptr), ncclSuccess);
  EXPECT_EQ(fake::Batches(), 0);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Batches(), 1);
  const std::vector<fake::Event> events = fake::Events();
  ASSERT_EQ(events.size(), 2 * Calls().size());
  for (size_t i = 0; i < Calls().size(); ++i) {
    EXPECT_EQ(events[Calls().size() + i].operation.function, Calls()[i].function);
  }
  for (const Call& call : Calls()) {
    Arguments arguments = good_;
    arguments.type = 99;
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(call.invoke(arguments, comm_, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << call.name;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(call.name));
  }
}

}  // namespace
}  // namespace c4
