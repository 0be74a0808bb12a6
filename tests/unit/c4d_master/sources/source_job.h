// A master in simulated time that hears of its job from sources alone: what RAS says, and what else is set on
// its handler. One thread.
#pragma once

#include <cstdint>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "c4d_master/c4d_handler.h"
#include "c4d_master/sources/ras_telemetry.h"
#include "c4d_master/sources/sources.h"
#include "service/metrics.h"
#include "tests/unit/c4d_master/sources/ras_text.h"

namespace c4::c4d {

class SourceJob {
 public:
  explicit SourceJob(SourceOptions sources)
      : store_(":memory:"), telemetry_("job", 1), handler_(Options(sources), &store_, &metrics_) {}

  // What RAS says for so long, once a second.
  void Say(const std::vector<RasTestCommunicator>& communicators, int seconds = 1) {
    for (int second = 0; second < seconds; ++second) {
      const absl::StatusOr<RasStatus> status = ParseRasReply(RasReply(communicators));
      ASSERT_TRUE(status.ok()) << status.status();
      Take(telemetry_.Take(*status, now_));
      Pass(1);
    }
  }
  void Take(const std::vector<v1::TelemetryBatch>& batches) {
    for (const v1::TelemetryBatch& batch : batches) {
      const absl::StatusOr<v1::TelemetryReply> reply = handler_.Ingest(batch, now_);
      ASSERT_TRUE(reply.ok()) << reply.status();
    }
  }
  // So long nobody says anything.
  void Pass(int seconds) {
    for (int i = 0; i < 10 * seconds; ++i) {
      now_.monotonic_ns += kSecondNs / 10;
      now_.unix_ns += kSecondNs / 10;
      handler_.Tick(now_);
    }
  }

  C4dHandler* handler() { return &handler_; }
  Now now() const { return now_; }
  std::vector<v1::Verdict> Open() const {
    const v1::ListVerdictsReply reply = handler_.ListVerdicts(false);
    return {reply.verdicts().begin(), reply.verdicts().end()};
  }

 private:
  static HandlerOptions Options(const SourceOptions& sources) {
    HandlerOptions options;
    options.job = "job";
    options.policy.agent_stale_ns = 10 * kSecondNs;
    options.log_verdicts = false;
    options.source_note = SourceNote(sources);
    options.slow_is_suspected = !sources.inspector.empty();
    return options;
  }

  Now now_{1000 * kSecondNs, 1'700'000'000 * kSecondNs};
  service::Metrics metrics_;
  VerdictStore store_;
  RasTelemetry telemetry_;
  C4dHandler handler_;
};

inline std::vector<std::string> EvidenceKinds(const v1::Verdict& verdict) {
  std::vector<std::string> kinds;
  for (const v1::Evidence& evidence : verdict.evidence()) kinds.push_back(evidence.kind());
  return kinds;
}

}  // namespace c4::c4d
