// Which sign is named as the cause of what, and how the C4 paper's table files it.
#include "c4d_master/likely_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::c4d {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

v1::Verdict Verdict(v1::Syndrome syndrome) {
  v1::Verdict verdict;
  verdict.set_syndrome(syndrome);
  verdict.set_since_unix_ns(1'700'000'000 * kSecondNs);
  verdict.mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict.mutable_culprit()->mutable_process()->set_host("node17");
  verdict.mutable_culprit()->mutable_process()->set_pid(4711);
  return verdict;
}

void Sign(const std::string& kind, const std::string& device, uint64_t number, double after_s,
          v1::Verdict* verdict, const std::string& text = "text") {
  v1::HardwareSign* const sign = verdict->add_hardware();
  sign->set_host("node17");
  sign->set_kind(kind);
  sign->set_device(device);
  sign->set_number(number);
  sign->set_text(text);
  sign->set_unix_ns(verdict->since_unix_ns() + static_cast<int64_t>(after_s * 1e9));
}

std::string Cause(const v1::Verdict& verdict) {
  const LikelyCause cause = LikelyCauseOf(verdict);
  return cause.error_class + "; " + (cause.sign.has_value() ? std::to_string(*cause.sign) : cause.text);
}

TEST(LikelyCause, ClassesOfTheXids) {
  for (const auto& [number, expected] :
       std::vector<std::pair<uint64_t, std::string>>{{79, "CUDA error; 0"},
                                                     {31, "CUDA error; 0"},
                                                     {48, "ECC/NVLink error; 0"},
                                                     {74, "ECC/NVLink error; 0"},
                                                     {149, "ECC/NVLink error; 0"},
                                                     {45, "ACK timeout; none was seen"}}) {
    v1::Verdict verdict = Verdict(v1::SYNDROME_CRASH);
    Sign("xid", "GPU 3", number, -1, &verdict);
    EXPECT_EQ(Cause(verdict), expected) << number;
  }
}

TEST(LikelyCause, WithoutASignTheSyndromeFilesIt) {
  EXPECT_EQ(Cause(Verdict(v1::SYNDROME_CRASH)), "ACK timeout; none was seen");
  EXPECT_EQ(Cause(Verdict(v1::SYNDROME_NON_COMMUNICATION_HANG)), "NCCL timeout; none was seen");
  EXPECT_EQ(Cause(Verdict(v1::SYNDROME_PATH_LOST)), "network error; none was seen");
  EXPECT_EQ(Cause(Verdict(v1::SYNDROME_NON_COMMUNICATION_SLOW)), "; none was seen");
  v1::Verdict mismatch = Verdict(v1::SYNDROME_MISMATCH);
  Sign("xid", "GPU 3", 79, -1, &mismatch);
  EXPECT_THAT(Cause(mismatch), HasSubstr("the program"));
}

TEST(LikelyCause, TheNetworkForTheNetworkAndTheGpuForTheRank) {
  for (const auto& [syndrome, expected] : std::vector<std::pair<v1::Syndrome, std::string>>{
           {v1::SYNDROME_COMMUNICATION_HANG, "network error; 1"}, {v1::SYNDROME_CRASH, "CUDA error; 0"}}) {
    v1::Verdict verdict = Verdict(syndrome);
    Sign("xid", "GPU 3", 79, -1, &verdict);
    Sign("link-down", "mlx5_0", 0, -1, &verdict);
    EXPECT_EQ(Cause(verdict), expected);
  }
  v1::Verdict verdict = Verdict(v1::SYNDROME_COMMUNICATION_HANG);
  Sign("ack-timeout", "mlx5_0", 12, -1, &verdict);
  EXPECT_EQ(Cause(verdict), "ACK timeout; 0");
}

TEST(LikelyCause, WhomTheKernelKilled) {
  v1::Verdict verdict = Verdict(v1::SYNDROME_CRASH);
  Sign("out-of-memory", "process 99 (cron)", 99, -1, &verdict);
  Sign("ecc", "GPU 3", 1, -20, &verdict);
  EXPECT_EQ(Cause(verdict), "ECC/NVLink error; 1");
  Sign("out-of-memory", "process 4711 (python)", 4711, -1, &verdict);
  EXPECT_EQ(Cause(verdict), "ACK timeout; 2");
}

TEST(LikelyCause, WhatSlowsAndWhatStops) {
  v1::Verdict slow = Verdict(v1::SYNDROME_NON_COMMUNICATION_SLOW);
  Sign("gpu-throttle", "GPU 3", 0x40, -5, &slow);
  EXPECT_EQ(Cause(slow), "; 0");
  v1::Verdict crash = Verdict(v1::SYNDROME_CRASH);
  Sign("pressure", "cpu", 0, -5, &crash);
  EXPECT_EQ(Cause(crash), "ACK timeout; none was seen");
  v1::Verdict late = Verdict(v1::SYNDROME_CRASH);
  Sign("nvlink", "GPU 3 NVLink 2", 5, 25, &late);  // long after: a consequence
  EXPECT_EQ(Cause(late), "ACK timeout; none was seen");
  v1::Verdict strange = Verdict(v1::SYNDROME_CRASH);
  Sign("of a later agent", "GPU 3", 5, 0, &strange);
  EXPECT_EQ(Cause(strange), "ACK timeout; none was seen");
}

}  // namespace
}  // namespace c4::c4d
