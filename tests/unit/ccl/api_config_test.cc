// ncclConfig_t, as programs built with this and with other releases hand it in.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "ccl/include/nccl.h"
#include "tests/unit/ccl/api_fake_engine.h"

namespace c4 {
namespace {

using ::testing::HasSubstr;

class ApiConfig : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }

  ncclResult_t Join(void* config) {
    ncclComm_t comm = nullptr;
    const ncclResult_t code =
        ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, static_cast<ncclConfig_t*>(config));
    if (code == ncclSuccess) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    } else {
      EXPECT_EQ(comm, nullptr);
    }
    return code;
  }

  void ExpectRefused(ncclConfig_t config, ncclResult_t code, const char* sentence) {
    EXPECT_EQ(Join(&config), code) << sentence;
    EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(sentence));
  }
};

TEST_F(ApiConfig, NoneAndTheInitializerAreTheDefaults) {
  EXPECT_EQ(Join(nullptr), ncclSuccess);
  EXPECT_EQ(fake::LastJoinName(), "");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Join(&config), ncclSuccess);
  EXPECT_EQ(fake::LastJoinName(), "");
}

TEST_F(ApiConfig, NameReachesTheEngine) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.commName = "tensor parallel";
  EXPECT_EQ(Join(&config), ncclSuccess);
  EXPECT_EQ(fake::LastJoinName(), "tensor parallel");
}

TEST_F(ApiConfig, WhatWasNotInitializedIsRefused) {
  ncclConfig_t config = {};
  ExpectRefused(config, ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config = NCCL_CONFIG_INITIALIZER;
  config.magic = 0xcafebeee;
  ExpectRefused(config, ncclInvalidArgument, "magic 0xcafebeee");
  for (const size_t size : {size_t{0}, size_t{19}, size_t{5000}, static_cast<size_t>(-1)}) {
    config = NCCL_CONFIG_INITIALIZER;
    config.size = size;
    ExpectRefused(config, ncclInvalidArgument, "bytes long");
  }
  config = NCCL_CONFIG_INITIALIZER;
  config.version = 0;
  ExpectRefused(config, ncclInvalidArgument, "version 0");
  config = NCCL_CONFIG_INITIALIZER;
  config.size = sizeof config + 8;
  ExpectRefused(config, ncclInvalidArgument, "more than that version has");
}

TEST_F(ApiConfig, ValuesOutOfRange) {
  const auto refuse = [this](int ncclConfig_t::*member, int value, const char* sentence) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.*member = value;
    ExpectRefused(config, ncclInvalidArgument, sentence);
  };
  refuse(&ncclConfig_t::blocking, 2, "config.blocking = 2");
  refuse(&ncclConfig_t::cgaClusterSize, -1, "config.cgaClusterSize = -1");
  refuse(&ncclConfig_t::minCTAs, 0, "config.minCTAs = 0");
  refuse(&ncclConfig_t::maxCTAs, -3, "config.maxCTAs = -3");
  refuse(&ncclConfig_t::splitShare, 2, "config.splitShare = 2");
  refuse(&ncclConfig_t::nvlinkCentricSched, 7, "config.nvlinkCentricSched = 7");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 4;
  config.maxCTAs = 2;
  ExpectRefused(config, ncclInvalidArgument, "config.minCTAs = 4 is more than config.maxCTAs = 2");
}

// The structure of 2.14 ended after `blocking` and 4 bytes of padding, where cgaClusterSize lies today. On
// the heap, so that a sanitizer sees a read past its end.
TEST_F(ApiConfig, AnOlderProgramsShorterStructure) {
  std::vector<char> old(24, '\x81');
  const size_t size = old.size();
  const unsigned int magic = 0xcafebeef;
  const unsigned int version = NCCL_VERSION(2, 14, 3);
  const int blocking = 1;
  memcpy(old.data(), &size, sizeof size);
  memcpy(old.data() + 8, &magic, sizeof magic);
  memcpy(old.data() + 12, &version, sizeof version);
  memcpy(old.data() + 16, &blocking, sizeof blocking);
  EXPECT_EQ(Join(old.data()), ncclSuccess) << ncclGetLastError(nullptr);
}

// 2.18 ended with splitShare and padding, where trafficClass lies today.
TEST_F(ApiConfig, PaddingOfAnOlderStructureIsNoValue) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.version = NCCL_VERSION(2, 26, 0);
  config.nvlsCTAs = -12345;  // from 2.27
  config.commName = reinterpret_cast<const char*>(0x1);
  EXPECT_EQ(Join(&config), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(fake::LastJoinName(), "");
}

TEST_F(ApiConfig, ANewerProgramsLongerStructure) {
  struct {
    ncclConfig_t known;
    uint64_t more[4];
  } config = {NCCL_CONFIG_INITIALIZER, {1, 2, 3, 4}};
  config.known.size = sizeof config;
  config.known.version = NCCL_VERSION(2, 31, 0);
  config.known.commName = "newer";
  EXPECT_EQ(Join(&config), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(fake::LastJoinName(), "newer");
}

}  // namespace
}  // namespace c4
