// Joins that wait, and what the tests of communicators that are made do again and again.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <string>
#include <thread>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Joins that wait: until a number of them is there, until it is opened, or until they are cancelled.
class Gate {
 public:
  Result Pass(const InitRequest& request) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    most_ = std::max(most_, waiting_);
    changed_.notify_all();
    const auto cancelled = [&] { return request.cancelled != nullptr && request.cancelled->load(); };
    while (!open_ && waiting_ < wanted_ && !cancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (waiting_ >= wanted_) open_ = true;
    --waiting_;
    changed_.notify_all();
    return cancelled() ? Fail(ncclInvalidUsage, "the join was cancelled") : Ok();
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void OpenAt(int wanted) { wanted_ = wanted; }
  void AwaitOne() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  int most() const { return most_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int wanted_ = 1000;
  int waiting_ = 0;
  int most_ = 0;
};

class ApiCommunicators : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }
  void TearDown() override { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "a test left its group open"; }

  static void JoinsPass(Gate* gate) {
    fake::SetAnswers({.on_join = [gate](const InitRequest& request) { return gate->Pass(request); }});
  }
  static ncclConfig_t NonBlocking() {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return config;
  }
  static ncclComm_t JoinNonBlocking(int rank_count = 1, int rank = 0) {
    ncclConfig_t config = NonBlocking();
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, rank_count, ncclUniqueId{}, rank, &config), ncclInProgress);
    EXPECT_NE(comm, nullptr);
    return comm;
  }
  // As a program does it.
  static ncclResult_t Await(ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
      std::this_thread::yield();
    }
    return state;
  }
  // The last pin of a background thread may go a moment after it has told its end.
  static void AwaitHappened(const std::string& wanted) {
    for (int i = 0; i < 1000 && fake::Happened() != wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(fake::Happened(), wanted);
  }
  void ExpectNotReady(ncclComm_t comm) {
    int value = 0;
    const auto expect = [&](ncclResult_t code) {
      EXPECT_EQ(code, ncclInvalidUsage);
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("is not ready"));
    };
    expect(ncclCommCount(comm, &value));
    expect(AllReduce(comm));
    expect(ncclCommFinalize(comm));
    expect(ncclCommDestroy(comm));
    expect(ncclCommRevoke(comm, 0));
    ncclComm_t child = nullptr;
    expect(ncclCommSplit(comm, 0, 0, &child, nullptr));
    expect(ncclCommShrink(comm, nullptr, 0, &child, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_EQ(child, nullptr);
    ncclRedOp_t reduction = ncclSum;
    expect(ncclRedOpCreatePreMulSum(&reduction, data_, ncclFloat, ncclScalarHostImmediate, comm));
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    EXPECT_EQ(state, ncclInProgress);
  }
  ncclResult_t AllReduce(ncclComm_t comm) {
    return ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr);
  }

  float data_[4] = {};
};

}  // namespace c4
