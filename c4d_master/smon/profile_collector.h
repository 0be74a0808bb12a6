// Takes the profiles out of an agent's batches (telemetry.proto), for as long as a session lasts.
//
// What batches hold is not believed: kinds, numbers and times are checked, what cannot be is counted as left
// out; memory is bounded. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "c4d_master/job_view.h"
#include "c4d_master/smon/profile.h"

namespace c4::v1 {
class ProcessReport;
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

class ProfileCollector {
 public:
  // Of all processes: some 60 bytes each.
  static constexpr uint64_t kMaxEntries = 8'000'000;

  explicit ProfileCollector(uint64_t max_entries = kMaxEntries) : max_entries_(max_entries) {}

  // A batch that the handler took in; those that come twice count once. REQUIRES: CheckBatch(batch).
  void Observe(const v1::TelemetryBatch& batch, int64_t arrival_ns);

  // Steps that every process with marks has ended, of the data that has come; 0 where none marks.
  int CompleteSteps() const;
  const Profile& profile() const { return profile_; }

 private:
  struct Source {
    size_t node = 0;
    uint64_t agent_epoch = 0;
    uint64_t sequence = 0;
    ClockOffset clock;
  };

  void Take(const v1::ProcessReport& report, size_t node, uint32_t clock, ProfiledProcess* process);
  void TakeProfile(const v1::ProcessReport& report, uint32_t clock, ProfiledProcess* process);
  bool HasRoom();

  const uint64_t max_entries_;
  uint64_t entries_ = 0;
  Profile profile_;
  std::map<std::string, Source> sources_;              // by host
  std::map<ProcessKey, uint64_t> overwritten_before_;  // when it was first seen
};

}  // namespace c4::c4d
