// Communicators that are made together, or not at all: InitAll, several ids, groups, aborts while one is
// made, revocation.
#include "tests/unit/ccl/api_communicators.h"

#include <atomic>
#include <string>
#include <thread>

namespace c4 {
namespace {

TEST_F(ApiCommunicators, InitAllMakesAllRanksAtTheSameTime) {
  Gate gate;
  gate.OpenAt(5);
  JoinsPass(&gate);
  ncclComm_t comms[5] = {};
  EXPECT_EQ(ncclCommInitAll(comms, 5, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(gate.most(), 5);
  for (int i = 0; i < 5; ++i) {
    int rank = -1;
    int count = 0;
    EXPECT_EQ(ncclCommUserRank(comms[i], &rank), ncclSuccess);
    EXPECT_EQ(ncclCommCount(comms[i], &count), ncclSuccess);
    EXPECT_EQ(rank, i);
    EXPECT_EQ(count, 5);
  }
  for (const InitRequest& request : fake::Joins()) {
    EXPECT_EQ(request.id.internal[0], 'P') << "an id of its own, whatever NCCL_COMM_ID says";
    EXPECT_EQ(request.parent_id, 0u);
  }
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiCommunicators, InitAllChecksItsArguments) {
  ncclComm_t comms[2] = {};
  const int twice[] = {3, 3};
  const int negative[] = {0, -1};
  const int good[] = {7, 2};
  EXPECT_EQ(ncclCommInitAll(nullptr, 2, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms, -1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms, 2, twice), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("device 3 is listed twice"));
  EXPECT_EQ(ncclCommInitAll(comms, 2, negative), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms, 0, nullptr), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "");
  fake::SetAnswers({.private_id = {ncclSystemError, "no port"}});
  EXPECT_EQ(ncclCommInitAll(comms, 2, good), ncclSystemError);
  EXPECT_STREQ(ncclGetLastError(nullptr), "ncclCommInitAll: no port");
  fake::SetAnswers({});
  EXPECT_EQ(ncclCommInitAll(comms, 2, good), ncclSuccess);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ApiCommunicators, OneRankThatFailsEndsTheOthers) {
  Gate gate;  // opens for nobody: the others wait until they are cancelled
  fake::SetAnswers({.on_join = [&gate](const InitRequest& request) {
    if (request.rank == 2) return Fail(ncclSystemError, "no descriptors left");
    return gate.Pass(request);
  }});
  ncclComm_t comms[4] = {};
  EXPECT_EQ(ncclCommInitAll(comms, 4, nullptr), ncclSystemError);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("no descriptors left"));
  for (const ncclComm_t comm : comms) EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(fake::Happened(), "forget -1");
}

TEST_F(ApiCommunicators, SeveralIds) {
  ncclUniqueId ids[3] = {};
  for (int i = 0; i < 3; ++i) ids[i].internal[1] = static_cast<char>(i);
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 4, 0, 3, ids, nullptr), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "join 0, forget -1, forget -1")
      << "the first rank frees what waits at the others";
  EXPECT_EQ(fake::Joins()[0].id.internal[1], 0);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  fake::Reset();
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 4, 3, 3, ids, nullptr), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "join 3");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);

  fake::Reset();
  for (const int count : {0, -1, 5}) {
    EXPECT_EQ(ncclCommInitRankScalable(&comm, 4, 0, count, ids, nullptr), ncclInvalidArgument) << count;
    EXPECT_THAT(ncclGetLastError(nullptr), StartsWith("ncclCommInitRankScalable: nId = "));
    EXPECT_EQ(comm, nullptr);
  }
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 4, 0, 1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 4, 4, 1, ids, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 0, 0, 1, ids, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(nullptr, 4, 0, 1, ids, nullptr), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, AGroupMakesItsCommunicatorsTogetherAtItsEnd) {
  Gate gate;
  gate.OpenAt(3);
  const ncclComm_t ready = fake::Join(2, 1);
  fake::Reset();
  JoinsPass(&gate);
  ncclComm_t comms[3] = {};
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(ready), ncclSuccess);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ncclCommInitRank(&comms[i], 3, ncclUniqueId{}, i), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "record 1");
  EXPECT_EQ(AllReduce(ready), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(gate.most(), 3);
  EXPECT_THAT(fake::Happened(), testing::EndsWith("enqueue 1, enqueue 1")) << "operations come after";
  EXPECT_EQ(fake::Batches(), 1);
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(ready), ncclSuccess);
}

TEST_F(ApiCommunicators, WhatAGroupIsYetToMakeTakesNoCalls) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 1), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("is made at the end of the group"));
  EXPECT_EQ(AllReduce(comm), ncclInvalidUsage);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage) << "the operation failed, so the group does";
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, AFailedCallKeepsAGroupFromMakingAny) {
  ncclComm_t good = nullptr;
  ncclComm_t bad = nullptr;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&good, 2, ncclUniqueId{}, 1), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&bad, 2, ncclUniqueId{}, 2), ncclInvalidArgument);
  EXPECT_NE(good, nullptr);
  const ncclComm_t stale = good;
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("nothing of the group was made or enqueued"));
  EXPECT_EQ(good, nullptr);
  EXPECT_EQ(ncclCommDestroy(stale), ncclInvalidArgument);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, AnAbortBeforeTheEndOfTheGroup) {
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 1), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("aborted before it was made"));
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(fake::Happened(), "");
}

TEST_F(ApiCommunicators, RevokedCommunicatorsTakeNoOperations) {
  const ncclComm_t comm = fake::Join(2, 1);
  EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("revokeFlags = 1"));
  EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
  EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
  fake::SetAnswers({.async = {ncclInvalidUsage, "revoked"}});
  EXPECT_EQ(AllReduce(comm), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("was revoked"));
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  ncclResult_t state = ncclInProgress;
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_EQ(state, ncclSuccess) << "it was asked for, so it is no failure";
  int rank = -1;
  EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(fake::Happened(), "join 1, revoke 1, revoke 1, abort 1, free 1");
  EXPECT_EQ(ncclCommRevoke(comm, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRevoke(nullptr, 0), ncclInvalidArgument);
}

}  // namespace
}  // namespace c4
