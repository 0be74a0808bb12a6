// Communicators that do not block (config.blocking = 0): made, grouped, finalized and aborted in the
// background.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
#include <thread>

#include "tests/unit/ccl/api_communicators.h"

namespace c4 {
namespace {

TEST_F(ApiCommunicators, NonBlockingJoinsGoOnInTheBackground) {
  Gate gate;
  JoinsPass(&gate);
  const ncclComm_t comm = JoinNonBlocking(2, 1);
  gate.AwaitOne();
  ExpectNotReady(comm);
  EXPECT_EQ(fake::Happened(), "");
  gate.Open();
  EXPECT_EQ(Await(comm), ncclSuccess);
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  EXPECT_EQ(rank, 1);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  AwaitHappened("join 1, record 1, enqueue 1, finalize 1, free 1");
}

TEST_F(ApiCommunicators, ANonBlockingJoinThatFails) {
  fake::SetAnswers({.join = {ncclRemoteError, "rank 0 went away"}});
  const ncclComm_t comm = JoinNonBlocking(2, 1);
  EXPECT_EQ(Await(comm), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("rank 0 went away"));
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclRemoteError);
  EXPECT_EQ(AllReduce(comm), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("could not be made: rank 0 went away"));
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, AnAbortEndsANonBlockingJoin) {
  Gate gate;
  JoinsPass(&gate);
  const ncclComm_t comm = JoinNonBlocking(2, 1);
  gate.AwaitOne();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, AnAbortFromAnotherThreadEndsABlockingJoin) {
  Gate gate;
  JoinsPass(&gate);
  ncclComm_t comm = nullptr;
  std::atomic<ncclComm_t*> place{&comm};
  std::thread other([&] {
    gate.AwaitOne();
    EXPECT_EQ(ncclCommAbort(*place.load()), ncclSuccess);
  });
  EXPECT_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 1), ncclInvalidUsage);
  other.join();
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(fake::Happened(), "");
}

// The engine may be through with the join in the moment of the abort.
TEST_F(ApiCommunicators, AnAbortAtAnyMomentLeavesNothing) {
  std::mt19937 random(20261121);
  printf("seed 20261121\n");
  for (int round = 0; round < 60; ++round) {
    fake::Reset();
    const auto join_us = std::chrono::microseconds(random() % 300);
    const auto abort_us = std::chrono::microseconds(random() % 300);
    fake::SetAnswers({.on_join = [join_us](const InitRequest&) {
      std::this_thread::sleep_for(join_us);
      return Ok();
    }});
    const ncclComm_t comm = JoinNonBlocking();
    std::this_thread::sleep_for(abort_us);
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    if (!fake::Happened().empty()) AwaitHappened("join 0, abort 0, free 0");
  }
}

TEST_F(ApiCommunicators, AGroupOfNonBlockingCommunicators) {
  Gate gate;
  gate.OpenAt(3);
  const ncclComm_t ready = JoinNonBlocking(2, 1);
  EXPECT_EQ(Await(ready), ncclSuccess);
  fake::Reset();
  JoinsPass(&gate);
  ncclConfig_t config = NonBlocking();
  ncclComm_t comms[3] = {};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(ready), ncclSuccess);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ncclCommInitRankConfig(&comms[i], 3, ncclUniqueId{}, i, &config), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  ExpectNotReady(comms[0]);
  EXPECT_EQ(AllReduce(ready), ncclInvalidUsage) << "its operation waits for the end of the joins";
  EXPECT_EQ(ncclCommDestroy(ready), ncclInvalidUsage);
  EXPECT_EQ(ncclCommInitRankConfig(&comms[2], 3, ncclUniqueId{}, 2, &config), ncclInProgress);
  for (const ncclComm_t comm : comms) EXPECT_EQ(Await(comm), ncclSuccess);
  EXPECT_EQ(Await(ready), ncclSuccess);
  EXPECT_THAT(fake::Happened(), HasSubstr("enqueue 1"));
  EXPECT_EQ(AllReduce(ready), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(ready), ncclSuccess);
}

TEST_F(ApiCommunicators, AGroupInTheBackgroundThatFails) {
  const ncclComm_t ready = JoinNonBlocking(2, 1);
  EXPECT_EQ(Await(ready), ncclSuccess);
  fake::Reset();
  Gate gate;
  fake::SetAnswers({.on_join = [&gate](const InitRequest& request) {
    return request.rank == 0 ? Fail(ncclSystemError, "no thread") : gate.Pass(request);
  }});
  ncclConfig_t config = NonBlocking();
  ncclComm_t comms[2] = {};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(ready), ncclSuccess);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ncclCommInitRankConfig(&comms[i], 2, ncclUniqueId{}, i, &config), ncclSuccess);
  }
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_EQ(Await(comms[0]), ncclSystemError);
  EXPECT_NE(Await(comms[1]), ncclSuccess);
  EXPECT_EQ(Await(ready), ncclSystemError) << "its operation was not enqueued";
  EXPECT_EQ(fake::Batches(), 0);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(ready), ncclSuccess);
}

TEST_F(ApiCommunicators, BothKindsAreNotInOneGroup) {
  const ncclComm_t blocking = fake::Join();
  ncclConfig_t config = NonBlocking();
  ncclComm_t comm = nullptr;
  fake::Reset();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(blocking), ncclSuccess);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("cannot be in one group"));
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "record 0, take back 0");
  EXPECT_EQ(ncclCommDestroy(blocking), ncclSuccess);
}

TEST_F(ApiCommunicators, NonBlockingFinalize) {
  const ncclComm_t comm = JoinNonBlocking();
  EXPECT_EQ(Await(comm), ncclSuccess);
  std::atomic<bool> go{false};
  fake::SetAnswers({.on_finalize = [&go] {
    while (!go.load()) std::this_thread::yield();
  }});
  EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  go.store(true);
  EXPECT_EQ(Await(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  AwaitHappened("join 0, finalize 0, free 0");

  const ncclComm_t failing = JoinNonBlocking();
  EXPECT_EQ(Await(failing), ncclSuccess);
  fake::SetAnswers({.finalize = {ncclRemoteError, "rank 1 went away"}});
  EXPECT_EQ(ncclCommFinalize(failing), ncclInProgress);
  EXPECT_EQ(Await(failing), ncclRemoteError);
  EXPECT_EQ(ncclCommDestroy(failing), ncclSuccess);
}

}  // namespace
}  // namespace c4
