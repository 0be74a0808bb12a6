// What a program makes on a communicator: reductions of its own, and registered memory.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ApiResources : public ::testing::Test {
 protected:
  void SetUp() override {
    fake::Reset();
    comm_ = fake::Join(2, 1);
    fake::Reset();
  }
  void TearDown() override { EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess); }

  ncclRedOp_t Make(void* scalar, ncclDataType_t type,
                   ncclScalarResidence_t residence = ncclScalarHostImmediate) {
    ncclRedOp_t made = ncclSum;
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&made, scalar, type, residence, comm_), ncclSuccess)
        << ncclGetLastError(comm_);
    EXPECT_GE(static_cast<int>(made), static_cast<int>(ncclNumOps));
    return made;
  }
  ncclResult_t AllReduce(ncclRedOp_t reduction, ncclDataType_t type = ncclFloat) {
    return ncclAllReduce(data_, data_, 4, type, reduction, comm_, nullptr);
  }
  Operation LastOperation() { return fake::Events().back().operation; }
  template <typename T>
  T LastFactor() {
    const Operation operation = LastOperation();
    EXPECT_TRUE(operation.scales);
    EXPECT_EQ(operation.reduction, ncclSum);
    T factor{};
    memcpy(&factor, operation.factor, sizeof factor);
    return factor;
  }
  void ExpectRefused(ncclResult_t code, const char* sentence) {
    EXPECT_EQ(code, ncclInvalidArgument) << sentence;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(sentence));
  }

  ncclComm_t comm_ = nullptr;
  alignas(4096) double data_[4] = {};
};

TEST_F(ApiResources, AnImmediateScalarIsReadWhenTheReductionIsMade) {
  float scalar = 0.5f;
  const ncclRedOp_t half = Make(&scalar, ncclFloat);
  scalar = 7;
  EXPECT_EQ(AllReduce(half), ncclSuccess);
  EXPECT_EQ(LastFactor<float>(), 0.5f);
  EXPECT_EQ(ncclReduce(data_, data_, 4, ncclFloat, half, 0, comm_, nullptr), ncclSuccess);
  EXPECT_EQ(LastFactor<float>(), 0.5f);
  EXPECT_EQ(ncclReduceScatter(data_, data_, 1, ncclFloat, half, comm_, nullptr), ncclSuccess);
  EXPECT_EQ(LastFactor<float>(), 0.5f);
  EXPECT_EQ(ncclRedOpDestroy(half, comm_), ncclSuccess);
}

TEST_F(ApiResources, AScalarInMemoryIsReadWhenAnOperationIsCalled) {
  double scalar = 0.5;
  const ncclRedOp_t made = Make(&scalar, ncclDouble, ncclScalarDevice);
  EXPECT_EQ(AllReduce(made, ncclDouble), ncclSuccess);
  EXPECT_EQ(LastFactor<double>(), 0.5);
  scalar = 0.25;
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(AllReduce(made, ncclDouble), ncclSuccess);
  scalar = 0.125;
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(LastFactor<double>(), 0.25);
  EXPECT_EQ(ncclRedOpDestroy(made, comm_), ncclSuccess);
}

TEST_F(ApiResources, EveryTypeHasItsScalar) {
  for (int type = 0; type < ncclNumTypes; ++type) {
    // On the heap and no longer than needed, so that a sanitizer sees a read past it.
    std::vector<char> bytes;
    switch (type) {
      case ncclInt8:
      case ncclUint8:
      case ncclFloat8e4m3:
      case ncclFloat8e5m2:
        bytes.resize(1, 'x');
        break;
      case ncclFloat16:
      case ncclBfloat16:
        bytes.resize(2, 'x');
        break;
      case ncclInt64:
      case ncclUint64:
      case ncclFloat64:
        bytes.resize(8, 'x');
        break;
      default:
        bytes.resize(4, 'x');
    }
    const auto data_type = static_cast<ncclDataType_t>(type);
    const ncclRedOp_t made = Make(bytes.data(), data_type);
    EXPECT_EQ(AllReduce(made, data_type), ncclSuccess) << type;
    EXPECT_EQ(memcmp(LastOperation().factor, bytes.data(), bytes.size()), 0) << type;
    ExpectRefused(AllReduce(made, static_cast<ncclDataType_t>((type + 1) % ncclNumTypes)),
                  "cannot be used with data type");
    EXPECT_EQ(ncclRedOpDestroy(made, comm_), ncclSuccess);
  }
}

TEST_F(ApiResources, AReductionThatIsGoneIsRecognised) {
  float scalar = 2;
  const ncclRedOp_t first = Make(&scalar, ncclFloat);
  EXPECT_EQ(ncclRedOpDestroy(first, comm_), ncclSuccess);
  std::set<int> seen{static_cast<int>(first)};
  for (int i = 0; i < 100; ++i) {
    const ncclRedOp_t next = Make(&scalar, ncclFloat);
    EXPECT_TRUE(seen.insert(static_cast<int>(next)).second) << "a number was used again";
    ExpectRefused(AllReduce(first), "is not a reduction");
    EXPECT_EQ(ncclRedOpDestroy(next, comm_), ncclSuccess);
  }
  ExpectRefused(ncclRedOpDestroy(first, comm_), "ncclRedOpDestroy has left there");
  ExpectRefused(ncclRedOpDestroy(ncclSum, comm_), "0 is a reduction of NCCL's own");
  ExpectRefused(ncclRedOpDestroy(ncclAvg, comm_), "4 is a reduction of NCCL's own");
  ExpectRefused(ncclRedOpDestroy(static_cast<ncclRedOp_t>(-1), comm_), "-1 is not a reduction");
}

TEST_F(ApiResources, AReductionBelongsToItsCommunicator) {
  float scalar = 2;
  const ncclRedOp_t made = Make(&scalar, ncclFloat);
  const ncclComm_t other = fake::Join(2, 0);
  ExpectRefused(ncclAllReduce(data_, data_, 4, ncclFloat, made, other, nullptr), "is not a reduction");
  ExpectRefused(ncclRedOpDestroy(made, other), "is not a reduction");
  EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  EXPECT_EQ(AllReduce(made), ncclSuccess);
  // What is not destroyed goes with the communicator: the sanitizer would find it.
}

TEST_F(ApiResources, MakingAReductionChecksItsArguments) {
  float scalar = 2;
  ncclRedOp_t made = ncclSum;
  const auto create = [&](ncclRedOp_t* op, void* from, int type, int residence, ncclComm_t comm) {
    return ncclRedOpCreatePreMulSum(op, from, static_cast<ncclDataType_t>(type),
                                    static_cast<ncclScalarResidence_t>(residence), comm);
  };
  ExpectRefused(create(nullptr, &scalar, ncclFloat, 1, comm_), "op is NULL");
  ExpectRefused(create(&made, nullptr, ncclFloat, 1, comm_), "scalar is NULL");
  ExpectRefused(create(&made, &scalar, 12, 1, comm_), "12 is not a data type");
#if !defined( \
    __SANITIZE_ADDRESS__)  // built together with UBSan: C passes such numbers, C++ must not load them
  ExpectRefused(create(&made, &scalar, ncclFloat, 2, comm_), "2 is no residence");
  ExpectRefused(create(&made, &scalar, ncclFloat, -1, comm_), "-1 is no residence");
#endif
  ExpectRefused(create(&made, &scalar, ncclFloat, 1, nullptr), "the communicator is NULL");
  EXPECT_EQ(made, ncclSum);
  EXPECT_THAT(ncclGetLastError(nullptr), StartsWith("ncclRedOpCreatePreMulSum: "));
}

TEST_F(ApiResources, RegisteredBuffersAreGivenBackOnce) {
  void* handle = nullptr;
  void* second = nullptr;
  EXPECT_EQ(ncclCommRegister(comm_, data_, sizeof data_, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommRegister(comm_, data_, sizeof data_, &second), ncclSuccess);
  EXPECT_NE(handle, nullptr);
  EXPECT_NE(handle, second);
  EXPECT_EQ(ncclCommDeregister(comm_, handle), ncclSuccess);
  ExpectRefused(ncclCommDeregister(comm_, handle), "is no handle that ncclCommRegister gave out");
  ExpectRefused(ncclCommDeregister(comm_, data_), "is no handle");
  EXPECT_EQ(ncclCommDeregister(comm_, nullptr), ncclSuccess);
  const ncclComm_t other = fake::Join();
  ExpectRefused(ncclCommDeregister(other, second), "for this communicator");
  EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
  ExpectRefused(ncclCommDeregister(nullptr, second), "the communicator is NULL");
  ExpectRefused(ncclCommWindowDeregister(comm_, static_cast<ncclWindow_t>(second)), "ncclCommWindowRegister");
  EXPECT_EQ(ncclCommDeregister(comm_, second), ncclSuccess);

  ExpectRefused(ncclCommRegister(comm_, nullptr, 8, &handle), "buff is NULL");
  EXPECT_EQ(handle, nullptr);
  ExpectRefused(ncclCommRegister(comm_, data_, 0, &handle), "0 bytes");
  ExpectRefused(ncclCommRegister(comm_, data_, static_cast<size_t>(-1), &handle), "cannot be registered");
  ExpectRefused(ncclCommRegister(comm_, data_, 8, nullptr), "handle is NULL");
  ExpectRefused(ncclCommRegister(nullptr, data_, 8, &handle), "the communicator is NULL");
}

TEST_F(ApiResources, WindowsAreGivenBackOnce) {
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comm_, data_, sizeof data_, &window, NCCL_WIN_COLL_SYMMETRIC),
            ncclSuccess);
  EXPECT_NE(window, nullptr);
  EXPECT_EQ(ncclCommWindowDeregister(comm_, window), ncclSuccess);
  ExpectRefused(ncclCommWindowDeregister(comm_, window), "is no handle that ncclCommWindowRegister gave out");
  EXPECT_EQ(ncclCommWindowDeregister(comm_, nullptr), ncclSuccess);
  ExpectRefused(ncclCommWindowRegister(comm_, data_ + 1, 8, &window, NCCL_WIN_DEFAULT), "not aligned");
  ExpectRefused(ncclCommWindowRegister(comm_, data_, 8, &window, 8), "winFlags = 0x8");
  ExpectRefused(ncclCommWindowRegister(comm_, nullptr, 8, &window, 0), "buff is NULL");
  ExpectRefused(ncclCommWindowRegister(comm_, data_, 8, nullptr, 0), "win is NULL");
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  ExpectRefused(ncclCommWindowRegister(comm_, data_, 0, &window, 0), "0 bytes");
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
}

}  // namespace
}  // namespace c4
