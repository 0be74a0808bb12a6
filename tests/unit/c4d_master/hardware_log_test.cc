// Which of the hardware's events become evidence, of whom, and for how long.
#include "c4d_master/hardware_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/likely_cause.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
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
  EXPECT_THAT(Devices(Attached(OfHost("node17", 970 * kSecondNs))), ElementsAre("early", "late"));
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

// The whole way: batches in, verdicts out.
class HardwareEvidenceTest : public ::testing::Test {
 protected:
  HardwareEvidenceTest() {
    HandlerOptions options;
    options.job = "job";
    options.master_epoch = 1;
    handler_ = std::make_unique<C4dHandler>(options, &store_, &metrics_);
    handler_->Subscribe([this](const v1::Verdict&) { ++changes_; });
  }

  void Pass(int64_t ns) {
    for (int64_t passed = 0; passed < ns; passed += 50 * kMillisecondNs) {
      job_.Advance(50 * kMillisecondNs);
      if (++ticks_ % 5 == 0) {
        for (const auto& [name, host] : job_.hosts()) {
          v1::TelemetryBatch batch = job_.Batch(name);
          if (const auto events = events_.find(name); events != events_.end()) {
            for (const auto& [kind, at_ns] : events->second) {
              Add(kind, "GPU 3", static_cast<uint64_t>(at_ns), job_.now_ns() - at_ns, &batch, 79);
            }
          }
          ASSERT_TRUE(handler_->Ingest(batch, job_.now()).ok());
        }
      }
      if (ticks_ % 2 == 0) handler_->Tick(job_.now());
    }
  }
  void Say(const std::string& host, const std::string& kind) {
    events_[host].emplace_back(kind, job_.now_ns());
  }

  std::vector<std::string> Evidence(const v1::Verdict& verdict) const {
    std::vector<std::string> lines;
    for (const v1::Evidence& item : verdict.evidence()) {
      if (item.kind() == "hardware") lines.push_back(item.text());
    }
    return lines;
  }

  FakeJob job_{4, 2};
  VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  std::unique_ptr<C4dHandler> handler_;
  std::map<std::string, std::vector<std::pair<std::string, int64_t>>> events_;
  int ticks_ = 0;
  int changes_ = 0;
};

TEST_F(HardwareEvidenceTest, OfTheCulpritsHostAndNotOfOthers) {
  job_.Complete(20);
  Pass(kSecondNs);
  Say("host1", "xid");
  Say("host0", "ecc");
  Pass(1200 * kMillisecondNs);
  for (uint32_t rank = 0; rank < 4; ++rank) job_.Enter(rank);
  job_.SetState(2, ProcessState::kStopped);  // on host1
  Pass(4 * kSecondNs);
  const v1::ListVerdictsReply open = handler_->ListVerdicts(false);
  ASSERT_THAT(open.verdicts(), SizeIs(1));
  EXPECT_THAT(Evidence(open.verdicts(0)), ElementsAre("GPU 3 of host1: it says xid, 1.2 s before"));
  ASSERT_THAT(open.verdicts(0).hardware(), SizeIs(1));
  EXPECT_EQ(open.verdicts(0).hardware(0).number(), 79U);

  // What comes later, but in the window, is added, told of, and stored.
  const int before = changes_;
  Say("host1", "gpu-lost");
  Pass(kSecondNs);
  EXPECT_EQ(changes_, before + 1);
  const auto audit = store_.Audit("job");
  ASSERT_TRUE(audit.ok());
  EXPECT_THAT(Evidence(audit->back().verdict),
              ElementsAre(HasSubstr("1.2 s before"), HasSubstr("4.0 s after")));

  // And what the log has long forgotten stays with the verdict, while the next window is another one.
  Pass(40 * kSecondNs);
  Say("host1", "nvlink");
  Pass(kSecondNs);
  EXPECT_THAT(Evidence(handler_->ListVerdicts(false).verdicts(0)), SizeIs(2));
  EXPECT_EQ(changes_, before + 1);
}

TEST_F(HardwareEvidenceTest, EventsAloneAreNoVerdict) {
  job_.Complete(20);
  for (int i = 0; i < 20; ++i) {
    Say("host0", "xid");
    Say("host1", "gpu-lost");
    Pass(500 * kMillisecondNs);
  }
  EXPECT_EQ(changes_, 0);
}

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
