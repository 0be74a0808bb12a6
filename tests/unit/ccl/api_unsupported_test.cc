// Every exported call that this version does not offer refuses with its own name in the sentence.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Call {
  const char* name;
  std::function<ncclResult_t(ncclComm_t)> invoke;
};

const std::vector<Call>& Calls() {
  static const auto* const calls = new std::vector<Call>{
      {"ncclGroupSimulateEnd",
       [](ncclComm_t) {
         ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
         return ncclGroupSimulateEnd(&info);
       }},
      {"ncclDevCommCreate", [](ncclComm_t comm) { return ncclDevCommCreate(comm, nullptr, nullptr); }},
      {"ncclDevCommDestroy", [](ncclComm_t comm) { return ncclDevCommDestroy(comm, nullptr); }},
      {"ncclLsaBarrierCreateRequirement",
       [](ncclComm_t) {
         return ncclLsaBarrierCreateRequirement({1, 0, 1}, 1, nullptr, nullptr);
       }},
      {"ncclGinBarrierCreateRequirement",
       [](ncclComm_t comm) {
         return ncclGinBarrierCreateRequirement(comm, {1, 0, 1}, 1, nullptr, nullptr);
       }},
      {"ncclLLA2ACreateRequirement",
       [](ncclComm_t) { return ncclLLA2ACreateRequirement(1, 1, nullptr, nullptr); }},
      // Those that return no code: turned into one here.
      {"ncclTeamWorld",
       [](ncclComm_t comm) {
         const ncclTeam_t team = ncclTeamWorld(comm);
         return team.nRanks == 0 && team.rank == -1 && team.stride == 0 ? ncclInvalidUsage : ncclSuccess;
       }},
      {"ncclTeamLsa",
       [](ncclComm_t comm) {
         const ncclTeam_t team = ncclTeamLsa(comm);
         return team.nRanks == 0 && team.rank == -1 && team.stride == 0 ? ncclInvalidUsage : ncclSuccess;
       }},
      {"ncclTeamRail",
       [](ncclComm_t comm) {
         const ncclTeam_t team = ncclTeamRail(comm);
         return team.nRanks == 0 && team.rank == -1 && team.stride == 0 ? ncclInvalidUsage : ncclSuccess;
       }},
      {"ncclTeamRankToWorld",
       [](ncclComm_t comm) {
         return ncclTeamRankToWorld(comm, {1, 0, 1}, 0) == -1 ? ncclInvalidUsage : ncclSuccess;
       }},
      {"ncclTeamRankToLsa",
       [](ncclComm_t comm) {
         return ncclTeamRankToLsa(comm, {1, 0, 1}, 0) == -1 ? ncclInvalidUsage : ncclSuccess;
       }},
      {"ncclLLA2ACalcSlots",
       [](ncclComm_t) { return ncclLLA2ACalcSlots(4, 16) == -1 ? ncclInvalidUsage : ncclSuccess; }},
  };
  return *calls;
}

void ExpectAllRefused(ncclComm_t comm) {
  for (const Call& call : Calls()) {
    const std::string name = call.name;
    EXPECT_EQ(call.invoke(comm), ncclInvalidUsage) << name;
    EXPECT_THAT(ncclGetLastError(nullptr), StartsWith(name + ": "));
    EXPECT_THAT(ncclGetLastError(nullptr),
                HasSubstr("this version of the library does not offer " + name + ";"));
  }
}

TEST(ApiUnsupported, EachRefusesWithItsName) {
  fake::Reset();
  const ncclComm_t comm = fake::Join();
  ExpectAllRefused(comm);
  EXPECT_EQ(fake::Happened(), "join 0");
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST(ApiUnsupported, WithoutACommunicatorToo) {
  ExpectAllRefused(nullptr);
}

// What works and what is refused make up the 52 functions; a name in both, or in none, is a mistake here.
TEST(ApiUnsupported, NoneIsForgotten) {
  std::set<std::string> names = {
      "ncclAllGather",
      "ncclAllReduce",
      "ncclAlltoAll",
      "ncclBcast",
      "ncclBroadcast",
      "ncclCommAbort",
      "ncclCommCount",
      "ncclCommCuDevice",
      "ncclCommDeregister",
      "ncclCommDestroy",
      "ncclCommFinalize",
      "ncclCommGetAsyncError",
      "ncclCommInitAll",
      "ncclCommInitRank",
      "ncclCommInitRankConfig",
      "ncclCommInitRankScalable",
      "ncclCommRegister",
      "ncclCommRevoke",
      "ncclCommShrink",
      "ncclCommSplit",
      "ncclCommUserRank",
      "ncclCommWindowDeregister",
      "ncclCommWindowRegister",
      "ncclGather",
      "ncclGetErrorString",
      "ncclGetLastError",
      "ncclGetUniqueId",
      "ncclGetVersion",
      "ncclGroupEnd",
      "ncclGroupStart",
      "ncclMemAlloc",
      "ncclMemFree",
      "ncclRecv",
      "ncclRedOpCreatePreMulSum",
      "ncclRedOpDestroy",
      "ncclReduce",
      "ncclReduceScatter",
      "ncclResetDebugInit",
      "ncclScatter",
      "ncclSend",
  };
  for (const Call& call : Calls()) EXPECT_TRUE(names.insert(call.name).second) << call.name;
  EXPECT_EQ(names.size(), 52u);
}

}  // namespace
}  // namespace c4
