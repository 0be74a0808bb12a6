// The whole way of the hardware's events: in batches, out as evidence of verdicts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>

#include "c4d_master/c4d_handler.h"
#include "tests/unit/c4d_master/fake_job.h"

namespace c4::c4d {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace c4::c4d
