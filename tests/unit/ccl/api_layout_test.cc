// The interface's numbers, as the release of 2.28.9 has them: programs built with the vendor's header pass
// them to this library. All but the initializers is checked while this compiles.
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <type_traits>

#include "ccl/include/c4/marks.h"
#include "ccl/include/c4/mitigation.h"
#include "ccl/include/c4/stream.h"
#include "ccl/include/nccl.h"
#include "ccl/include/nccl_device.h"

// As CUDA declares it; another type here would not compile.
typedef struct CUstream_st* cudaStream_t;

// In api_header_test.c, compiled as C.
extern "C" size_t ConfigBytesInC();
extern "C" int DefaultBlockingInC();
extern "C" size_t WorkerBytesInC();
extern "C" c4Marks MarksInC();
extern "C" c4Mitigation MitigationInC();

namespace {

static_assert(NCCL_VERSION_CODE == 22809);
static_assert(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE);
static_assert(NCCL_VERSION(2, 8, 4) == 2804);
static_assert(NCCL_VERSION(2, 9, 6) == 20906);

static_assert(sizeof(ncclUniqueId) == 128 && alignof(ncclUniqueId) == 1);
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4);
static_assert(sizeof(ncclComm_t) == sizeof(void*));

static_assert(sizeof(c4Worker) == 48 && offsetof(c4Worker, layers) == 44);
static_assert(sizeof(ncclConfig_t) == 80 && alignof(ncclConfig_t) == 8);
static_assert(offsetof(ncclConfig_t, size) == 0);
static_assert(offsetof(ncclConfig_t, magic) == 8);
static_assert(offsetof(ncclConfig_t, version) == 12);
static_assert(offsetof(ncclConfig_t, blocking) == 16);
static_assert(offsetof(ncclConfig_t, cgaClusterSize) == 20);
static_assert(offsetof(ncclConfig_t, minCTAs) == 24);
static_assert(offsetof(ncclConfig_t, maxCTAs) == 28);
static_assert(offsetof(ncclConfig_t, netName) == 32);
static_assert(offsetof(ncclConfig_t, splitShare) == 40);
static_assert(offsetof(ncclConfig_t, trafficClass) == 44);
static_assert(offsetof(ncclConfig_t, commName) == 48);
static_assert(offsetof(ncclConfig_t, collnetEnable) == 56);
static_assert(offsetof(ncclConfig_t, CTAPolicy) == 60);
static_assert(offsetof(ncclConfig_t, shrinkShare) == 64);
static_assert(offsetof(ncclConfig_t, nvlsCTAs) == 68);
static_assert(offsetof(ncclConfig_t, nChannelsPerNetPeer) == 72);
static_assert(offsetof(ncclConfig_t, nvlinkCentricSched) == 76);

static_assert(sizeof(ncclSimInfo_t) == 24);
static_assert(offsetof(ncclSimInfo_t, magic) == 8 && offsetof(ncclSimInfo_t, version) == 12);
static_assert(offsetof(ncclSimInfo_t, estimatedTime) == 16);

static_assert(sizeof(ncclTeam_t) == 12 && std::is_trivially_copyable_v<ncclTeam_t>);
static_assert(offsetof(ncclTeam_t, nRanks) == 0 && offsetof(ncclTeam_t, rank) == 4);
static_assert(offsetof(ncclTeam_t, stride) == 8);

static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 &&
              ncclInternalError == 3);
static_assert(ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 &&
              ncclInProgress == 7);
static_assert(ncclNumResults == 8);

static_assert(ncclInt8 == 0 && ncclChar == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclInt == 2);
static_assert(ncclUint32 == 3 && ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclHalf == 6);
static_assert(ncclFloat32 == 7 && ncclFloat == 7 && ncclFloat64 == 8 && ncclDouble == 8 && ncclBfloat16 == 9);
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11 && ncclNumTypes == 12);

static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 &&
              ncclNumOps == 5);
static_assert(ncclMaxRedOp == 0x7fffffff);
static_assert(ncclScalarDevice == 0 && ncclScalarHostImmediate == 1);

static_assert(NCCL_SPLIT_NOCOLOR == -1 && NCCL_WIN_DEFAULT == 0 && NCCL_WIN_COLL_SYMMETRIC == 1);
static_assert(NCCL_WIN_REQUIRED_ALIGNMENT == 4096 && NCCL_SHRINK_DEFAULT == 0 && NCCL_SHRINK_ABORT == 1);
static_assert(NCCL_CTA_POLICY_DEFAULT == 0 && NCCL_CTA_POLICY_EFFICIENCY == 1 && NCCL_CTA_POLICY_ZERO == 2);

TEST(ApiLayout, Initializers) {
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(config.size, 80u);
  EXPECT_EQ(config.magic, 0xcafebeefu);
  EXPECT_EQ(config.version, 22809u);
  for (const int value :
       {config.blocking, config.cgaClusterSize, config.minCTAs, config.maxCTAs, config.splitShare,
        config.trafficClass, config.collnetEnable, config.CTAPolicy, config.shrinkShare, config.nvlsCTAs,
        config.nChannelsPerNetPeer, config.nvlinkCentricSched}) {
    EXPECT_EQ(value, INT_MIN);
  }
  EXPECT_EQ(config.netName, nullptr);
  EXPECT_EQ(config.commName, nullptr);

  const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(info.size, 24u);
  EXPECT_EQ(info.magic, 0x74685283u);
  EXPECT_EQ(info.version, 22809u);
  EXPECT_EQ(info.estimatedTime, -1.0f);
}

TEST(ApiLayout, TheSameInC) {
  EXPECT_EQ(ConfigBytesInC(), 80u);
  EXPECT_EQ(DefaultBlockingInC(), INT_MIN);
  EXPECT_EQ(WorkerBytesInC(), sizeof(c4Worker));
  EXPECT_EQ(MarksInC().begin(), 0u);
  c4Plan plan = {};
  plan.size = sizeof plan;
  EXPECT_EQ(MitigationInC().poll(&plan), 0);
}

}  // namespace
