// Groups: what is deferred, in which order it is enqueued, and how failures come out at the end.
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;

class ApiGroup : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }
  void TearDown() override { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "a test left its group open"; }

  ncclResult_t AllReduce(ncclComm_t comm) {
    return ncclAllReduce(data_, data_, 4, ncclFloat, ncclSum, comm, nullptr);
  }

  // Forgets what happened until now.
  static void Begin() { fake::Reset(); }

  float data_[4] = {};
};

TEST_F(ApiGroup, EndWithoutStart) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("there is no group to end"));
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(ApiGroup, OperationsAreCountedAtTheCallAndEnqueuedAtTheEnd) {
  const ncclComm_t first = fake::Join(2, 0);
  const ncclComm_t second = fake::Join(2, 1);
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(second), ncclSuccess);
  EXPECT_EQ(AllReduce(first), ncclSuccess);
  EXPECT_EQ(AllReduce(second), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 1, record 0, record 1");
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 1, record 0, record 1, enqueue 0, enqueue 1, enqueue 1");
  EXPECT_EQ(fake::Batches(), 2) << "each communicator gets all that is its own at once";
  EXPECT_EQ(ncclCommDestroy(first), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(second), ncclSuccess);
}

TEST_F(ApiGroup, OnlyTheOutermostEndEnqueues) {
  const ncclComm_t comm = fake::Join();
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 0");
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 0, record 0, enqueue 0, enqueue 0");
  // The group is over: the next call goes straight through.
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 0, record 0, enqueue 0, enqueue 0, record 0, enqueue 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, AGroupBelongsToItsThread) {
  const ncclComm_t comm = fake::Join();
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  std::thread([this, comm] {
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    EXPECT_EQ(AllReduce(comm), ncclSuccess);
  }).join();
  EXPECT_EQ(fake::Happened(), "record 0, enqueue 0");
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, AFailedCallFailsTheGroupAtItsEnd) {
  const ncclComm_t comm = fake::Join();
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);                      // as in NCCL: only the outermost end tells
  EXPECT_EQ(ncclCommRevoke(nullptr, 0), ncclInvalidArgument);  // no call of groups
  EXPECT_EQ(ncclBroadcast(data_, data_, 4, ncclFloat, 9, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);  // the first failure
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclGroupEnd: nothing of the group was enqueued, since a call in it failed: "
               "ncclAllReduce: the communicator is NULL");
  EXPECT_EQ(fake::Happened(), "record 0, take back 0") << "else the master sees an operation that hangs";
  // The failure is over with the group.
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 0, take back 0, record 0, enqueue 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, CallsThatGroupsDoNotCollectLeaveItWhole) {
  const ncclComm_t comm = fake::Join();
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclCommCount(nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 0, enqueue 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, AnEnqueueThatFailsEndsTheGroup) {
  const ncclComm_t first = fake::Join(2, 0);
  const ncclComm_t second = fake::Join(2, 1);
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(AllReduce(second), ncclSuccess);
  EXPECT_EQ(AllReduce(first), ncclSuccess);
  fake::SetAnswers({.enqueue = {ncclSystemError, "no thread"}, .enqueue_after = 1});
  EXPECT_EQ(ncclGroupEnd(), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(nullptr),
               "ncclGroupEnd: 2 of the 3 operations in the group could not be enqueued: no thread");
  EXPECT_EQ(fake::Happened(), "record 1, record 1, record 0, enqueue 0, take back 1, take back 1");
  EXPECT_EQ(ncclCommDestroy(first), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(second), ncclSuccess);
}

// Two ranks that call in different orders hand over in the same: on one stream they would deadlock otherwise.
TEST_F(ApiGroup, CommunicatorsAreServedInTheOrderOfTheirIds) {
  const ncclComm_t comms[3] = {fake::Join(3, 0), fake::Join(3, 1), fake::Join(3, 2)};
  for (const auto& order : {std::array{0, 1, 2}, std::array{2, 1, 0}, std::array{1, 2, 0}}) {
    Begin();
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (const int i : order) EXPECT_EQ(ncclSend(data_, 4, ncclFloat, 0, comms[i], nullptr), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    EXPECT_THAT(fake::Happened(), testing::EndsWith("enqueue 0, enqueue 1, enqueue 2"));
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, SendsAndReceivesKeepTheirArgumentsAndTheirOrder) {
  const ncclComm_t comm = fake::Join(4, 2);
  char out[8] = {};
  char in[8] = {};
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclRecv(in, 1, ncclFloat64, 3, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclSend(out, 8, ncclUint8, 1, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(fake::Batches(), 1);
  const std::vector<fake::Event> events = fake::Events();
  ASSERT_EQ(events.size(), 4u);
  const Operation& receive = events[2].operation;
  EXPECT_EQ(receive.function, wire::kRecv);
  EXPECT_EQ(receive.recv_buffer, in);
  EXPECT_EQ(receive.send_buffer, nullptr);
  EXPECT_EQ(receive.count, 1u);
  EXPECT_EQ(receive.data_type, ncclFloat64);
  EXPECT_EQ(receive.root, 3);
  const Operation& send = events[3].operation;
  EXPECT_EQ(send.function, wire::kSend);
  EXPECT_EQ(send.send_buffer, out);
  EXPECT_EQ(send.recv_buffer, nullptr);
  EXPECT_EQ(send.count, 8u);
  EXPECT_EQ(send.data_type, ncclUint8);
  EXPECT_EQ(send.root, 1);
  EXPECT_EQ(send.called_ticks, 1u);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiGroup, DestroyWaitsForTheGroupsOperationsAbortDoesNot) {
  const ncclComm_t comm = fake::Join();
  const ncclComm_t other = fake::Join(2, 1);
  Begin();
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("1 operations of the communicator wait for ncclGroupEnd"));
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);  // nothing of it waits
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("destroyed before the end of the group"));
  EXPECT_EQ(fake::Happened(), "record 0, finalize 1, free 1, abort 0, free 0");
}

}  // namespace
}  // namespace c4
