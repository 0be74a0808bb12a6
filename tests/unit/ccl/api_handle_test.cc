// Handles of communicators: what is none is recognised without being touched, also after destruction, and a
// communicator may be aborted while other threads are using it.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;

class ApiHandle : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }

  // That every call which takes a communicator refuses `comm`.
  void ExpectNoCommunicator(ncclComm_t comm) {
    int value = 0;
    ncclResult_t error = ncclSuccess;
    const auto expect_refused = [&](ncclResult_t code, const char* call) {
      EXPECT_EQ(code, ncclInvalidArgument) << call << " of " << comm;
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("is not a communicator of this process")) << call;
    };
    expect_refused(ncclCommCount(comm, &value), "ncclCommCount");
    expect_refused(ncclCommUserRank(comm, &value), "ncclCommUserRank");
    expect_refused(ncclCommCuDevice(comm, &value), "ncclCommCuDevice");
    expect_refused(ncclCommGetAsyncError(comm, &error), "ncclCommGetAsyncError");
    expect_refused(ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr), "ncclAllReduce");
    expect_refused(ncclCommFinalize(comm), "ncclCommFinalize");
    expect_refused(ncclCommDestroy(comm), "ncclCommDestroy");
    expect_refused(ncclCommAbort(comm), "ncclCommAbort");
    EXPECT_NE(ncclGetLastError(comm), nullptr);
  }

  float data_[4] = {};
};

ncclComm_t HandleOf(uint64_t number) {
  return std::bit_cast<ncclComm_t>(number);
}
uint64_t NumberOf(ncclComm_t comm) {
  return reinterpret_cast<uint64_t>(comm);
}

TEST_F(ApiHandle, ForeignPointersAreRefusedUnread) {
  const ncclComm_t live = fake::Join();
  int on_stack = 0;
  std::vector<char> on_heap(1 << 16);
  ExpectNoCommunicator(HandleOf(1));
  ExpectNoCommunicator(HandleOf(2));
  ExpectNoCommunicator(HandleOf(0xdeadbeef));
  ExpectNoCommunicator(HandleOf(UINT64_MAX));
  ExpectNoCommunicator(HandleOf(UINT64_MAX - 1));
  ExpectNoCommunicator(reinterpret_cast<ncclComm_t>(&on_stack));
  ExpectNoCommunicator(reinterpret_cast<ncclComm_t>(on_heap.data()));
  ExpectNoCommunicator(HandleOf(reinterpret_cast<uint64_t>(on_heap.data()) + 1));
  for (int bit = 0; bit < 64; ++bit) ExpectNoCommunicator(HandleOf(NumberOf(live) ^ (uint64_t{1} << bit)));
  EXPECT_EQ(ncclCommDestroy(live), ncclSuccess);
}

TEST_F(ApiHandle, UseAfterDestroyAndAfterAbort) {
  const ncclComm_t destroyed = fake::Join();
  EXPECT_EQ(ncclCommDestroy(destroyed), ncclSuccess);
  ExpectNoCommunicator(destroyed);
  const ncclComm_t aborted = fake::Join();
  EXPECT_EQ(ncclCommAbort(aborted), ncclSuccess);
  ExpectNoCommunicator(aborted);
  EXPECT_EQ(fake::Happened(), "join 0, finalize 0, free 0, join 0, abort 0, free 0");
}

TEST_F(ApiHandle, APlaceTakenAgainGetsAnotherHandle) {
  std::set<ncclComm_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const ncclComm_t comm = fake::Join();
    EXPECT_TRUE(seen.insert(comm).second);
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }
  const ncclComm_t live = fake::Join();
  for (const ncclComm_t comm : seen) {
    int count = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  }
  EXPECT_EQ(ncclCommDestroy(live), ncclSuccess);
}

TEST_F(ApiHandle, ManyAtATime) {
  std::vector<ncclComm_t> comms;
  comms.reserve(1000);
  for (int i = 0; i < 1000; ++i) comms.push_back(fake::Join(1000, i));
  for (int i = 0; i < 1000; ++i) {
    int rank = -1;
    EXPECT_EQ(ncclCommUserRank(comms[static_cast<size_t>(i)], &rank), ncclSuccess);
    EXPECT_EQ(rank, i);
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiHandle, FinalizeThenDestroy) {
  const ncclComm_t comm = fake::Join();
  EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("was finalized before"));
  EXPECT_EQ(ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr), ncclInvalidArgument);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "join 0, finalize 0, free 0");
}

TEST_F(ApiHandle, WhatCannotEndInOrderIsEndedAtOnce) {
  const ncclComm_t comm = fake::Join();
  fake::SetAnswers({.finalize = {ncclRemoteError, "rank 1 went away"}});
  EXPECT_EQ(ncclCommDestroy(comm), ncclRemoteError);
  EXPECT_STREQ(ncclGetLastError(nullptr), "ncclCommDestroy: rank 1 went away");
  EXPECT_EQ(fake::Happened(), "join 0, finalize 0, abort 0, free 0");

  fake::Reset();
  const ncclComm_t finalized = fake::Join();
  fake::SetAnswers({.finalize = {ncclRemoteError, "rank 1 went away"}});
  EXPECT_EQ(ncclCommFinalize(finalized), ncclRemoteError);
  EXPECT_EQ(ncclCommDestroy(finalized), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "join 0, finalize 0, abort 0, free 0");
}

TEST_F(ApiHandle, LastErrorIsTheThreadsAndTheCommunicators) {
  std::thread([] {
    EXPECT_STREQ(ncclGetLastError(nullptr), "");
    EXPECT_EQ(ncclCommGetAsyncError(nullptr, nullptr), ncclInvalidArgument);
    EXPECT_STREQ(ncclGetLastError(nullptr), "ncclCommGetAsyncError: the communicator is NULL");
  }).join();
  const ncclComm_t comm = fake::Join();
  const std::string before = ncclGetLastError(nullptr);
  EXPECT_EQ(before.find("ncclCommGetAsyncError"), std::string::npos);
  // A communicator's sentence is seen from other threads; success does not erase it.
  std::thread([comm] { EXPECT_EQ(ncclCommCount(comm, nullptr), ncclInvalidArgument); }).join();
  int count = 0;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclSuccess);
  EXPECT_STREQ(ncclGetLastError(comm), "ncclCommCount: the argument count is NULL");
  EXPECT_EQ(ncclGetLastError(nullptr), before);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

// Threads in the middle of calls keep the communicator alive; once it is gone they are refused.
TEST_F(ApiHandle, AbortUnderUse) {
  for (int round = 0; round < 5; ++round) {
    fake::Reset();
    const ncclComm_t comm = fake::Join();
    std::atomic<int> using_it{0};
    std::vector<std::thread> users;
    users.reserve(3);
    for (int i = 0; i < 3; ++i) {
      users.emplace_back([this, comm, &using_it] {
        ncclResult_t code = ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr);
        ++using_it;
        while (code == ncclSuccess) code = ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr);
        EXPECT_EQ(code, ncclInvalidArgument);
      });
    }
    while (using_it.load() < 3) std::this_thread::yield();
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (std::thread& user : users) user.join();
    const std::vector<fake::Event> events = fake::Events();
    EXPECT_EQ(events.back().what, "free");
    EXPECT_EQ(
        std::count_if(events.begin(), events.end(), [](const auto& event) { return event.what == "free"; }),
        1);
  }
}

}  // namespace
}  // namespace c4
