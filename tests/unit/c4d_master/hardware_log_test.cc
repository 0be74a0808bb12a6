// Which of the hardware's events become evidence, of whom, and for how long.
#include "c4d_master/hardware_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "c4/v1/telemetry.pb.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

void Add(const std::string& kind, const std::string& device, uint64_t sequence, int64_t age_ns,
         v1::TelemetryBatch* batch, uint64_t number = 0) {
  v1::HardwareEvent* const event = batch->add_hardware();
  event->set_kind(kind);
  event->set_device(device);
  event->set_sequence(sequence);
  event->set_number(number);
  event->set_text("it says " + kind);
  event->set_age_ns(age_ns);
}

v1::TelemetryBatch Batch(const std::string& host, uint64_t epoch = 1) {
  v1::TelemetryBatch batch;
  batch.set_host(host);
  batch.set_agent_epoch(epoch);
  batch.set_monotonic_ns(5000 * kSecondNs);
  return batch;
}

Finding OfHost(const std::string& host, int64_t since_at_ns) {
  Finding finding;
  finding.host = host;
  finding.since_at_ns = since_at_ns;
  return finding;
}

std::vector<std::string> Devices(const Finding& finding) {
  std::vector<std::string> devices;
  for (const HardwareSign& sign : finding.hardware) devices.push_back(sign.device);
  return devices;
}

constexpr Now kNow{1000 * kSecondNs, 1'700'000'000 * kSecondNs};

class HardwareLogTest : public ::testing::Test {
 protected:
  Finding Attached(Finding finding) const {
    std::vector<Finding> findings = {std::move(finding)};
    log_.Attach(JobSnapshot(), kNow, &findings);
    return findings[0];
  }
  HardwareLog log_;
};

TEST_F(HardwareLogTest, TheWindowAroundTheOnset) {
  v1::TelemetryBatch batch = Batch("node17");
  Add("xid", "too early", 1, 81 * kSecondNs, &batch);
  Add("xid", "early", 2, 79 * kSecondNs, &batch);
  Add("xid", "late", 3, 0, &batch);
  EXPECT_EQ(log_.Observe(batch, 1000 * kSecondNs), 3U);
  EXPECT_THAT(Devices(Attached(OfHost("node17", 980 * kSecondNs))), ElementsAre("late", "early"));
  EXPECT_THAT(Devices(Attached(OfHost("node17", 970 * kSecondNs))),
              ElementsAre("late", "early", "too early"));
  EXPECT_THAT(Devices(Attached(OfHost("node17", 969 * kSecondNs))), ElementsAre("early", "too early"));
  EXPECT_THAT(Devices(Attached(OfHost("node16", 980 * kSecondNs))), IsEmpty());
  EXPECT_THAT(Devices(Attached(OfHost("", 980 * kSecondNs))), IsEmpty());
  EXPECT_EQ(Attached(OfHost("node17", 980 * kSecondNs)).hardware[1].unix_ns, kNow.unix_ns - 79 * kSecondNs);
}

TEST_F(HardwareLogTest, BothEndsOfAConnection) {
  for (const char* host : {"node1", "node2", "node3"}) {
    v1::TelemetryBatch batch = Batch(host);
    Add("link-down", std::string("eth0 of ") + host, 1, 0, &batch);
    log_.Observe(batch, 1000 * kSecondNs);
  }
  Finding finding = OfHost("", 999 * kSecondNs);
  finding.connections.push_back({.from_rank = 0, .to_rank = 1, .from_host = "node1", .to_host = "node3"});
  EXPECT_THAT(Devices(Attached(finding)), ElementsAre("eth0 of node1", "eth0 of node3"));
}

TEST_F(HardwareLogTest, ABatchThatTellsAgainAddsNothing) {
  v1::TelemetryBatch batch = Batch("node17");
  Add("xid", "GPU 0", 1, kSecondNs, &batch);
  EXPECT_EQ(log_.Observe(batch, 1000 * kSecondNs), 1U);
  batch.mutable_hardware(0)->set_times(7);
  EXPECT_EQ(log_.Observe(batch, 1000 * kSecondNs), 0U);
  const Finding finding = Attached(OfHost("node17", 1000 * kSecondNs));
  ASSERT_THAT(finding.hardware, SizeIs(1));
  EXPECT_EQ(finding.hardware[0].times, 7U);
  // An agent that starts anew numbers anew.
  v1::TelemetryBatch other = Batch("node17", 2);
  Add("xid", "GPU 0", 1, 0, &other);
  EXPECT_EQ(log_.Observe(other, 1001 * kSecondNs), 1U);
}

TEST_F(HardwareLogTest, IsBoundedInNumberAndTime) {
  uint64_t sequence = 0;
  for (int host = 0; host < 200; ++host) {
    for (int i = 0; i < 2; ++i) {
      v1::TelemetryBatch batch = Batch("node" + std::to_string(host));
      for (int j = 0; j < 250; ++j) Add("pcie-error", std::string(10'000, 'x'), ++sequence, -5, &batch);
      log_.Observe(batch, 1000 * kSecondNs + host);
    }
  }
  EXPECT_LE(log_.size(), HardwareLog::kMost);
  const Finding finding = Attached(OfHost("node199", 1000 * kSecondNs));
  EXPECT_THAT(finding.hardware, SizeIs(kMostSignsOfKind));
  EXPECT_LE(finding.hardware[0].device.size(), 1000U);
  for (int host = 0; host < 200; ++host) {
    log_.Observe(Batch("node" + std::to_string(host)), 1000 * kSecondNs + host + HardwareLog::kKeepNs + 1);
  }
  EXPECT_EQ(log_.size(), 0U);
}

TEST_F(HardwareLogTest, AbsurdAgesAreNoTime) {
  v1::TelemetryBatch batch = Batch("node17");
  Add("xid", "future", 1, INT64_MIN, &batch);
  Add("xid", "past", 2, INT64_MAX, &batch);
  EXPECT_EQ(log_.Observe(batch, 1000 * kSecondNs), 1U);
  EXPECT_THAT(Devices(Attached(OfHost("node17", 1000 * kSecondNs))), ElementsAre("future"));
}

}  // namespace
}  // namespace c4::c4d
