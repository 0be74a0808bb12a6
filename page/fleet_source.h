// Where the operator's page learns of jobs: from the masters of a run directory, or from a recording. All
// calls from any thread, several at a time; they may wait as long as a master takes to answer, a few seconds
// at most. Errors are sentences for people.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/alerts.pb.h"
#include "c4/v1/c4d.pb.h"
#include "c4/v1/c4p.pb.h"
#include "c4/v1/page.pb.h"
#include "c4/v1/recovery.pb.h"
#include "c4/v1/smon.pb.h"
#include "service/status.h"

namespace c4::page {

inline constexpr uint32_t kMostPathEvents = 1000;  // in one reply: the newest

// Which job, and of a recording when: 0 is its end.
struct JobAt {
  std::string id;
  int64_t unix_ns = 0;
};

// What of a job's timeline is asked for.
struct TimelineWindow {
  int64_t from_unix_ns = 0;                        // 0: ten seconds before `to_unix_ns`
  int64_t to_unix_ns = 0;                          // 0: the end; of a recording the moment that is shown
  std::vector<std::pair<int32_t, int32_t>> ranks;  // from, to; none: all
};

class FleetSource {
 public:
  virtual ~FleetSource() = default;

  virtual v1::PageServer Server() { return v1::PAGE_SERVER_ALL; }
  // What is known of the jobs without asking their masters: id, job, state, host, epoch, times. `notes`: what
  // could not be read.
  virtual std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) = 0;
  virtual bool HasPathMaster() = 0;

  // What a source does not know it need not answer: FailedPrecondition then, with the words of NotKnown.
  virtual absl::Status NotKnown() const;

  virtual absl::StatusOr<v1::ListVerdictsReply> Verdicts(const JobAt& job, bool include_cleared);
  virtual absl::StatusOr<v1::GetStatusReply> Status(const JobAt& job);
  virtual absl::StatusOr<v1::GetMatrixReply> Matrix(const JobAt& job, const v1::GetMatrixRequest& request);
  virtual absl::StatusOr<v1::GetIterationsReply> Iterations(const JobAt& job, uint64_t from);
  virtual absl::StatusOr<v1::ListAlertsReply> Alerts(const JobAt& job);
  virtual absl::StatusOr<v1::GetRecoveryReply> Recovery(const JobAt& job);
  virtual absl::StatusOr<v1::ListSessionsReply> Sessions(const JobAt& job);
  virtual absl::StatusOr<v1::GetSessionReply> Session(const JobAt& job, uint64_t number);
  virtual absl::StatusOr<v1::PageTimeline> Timeline(const JobAt& job, const TimelineWindow& window);
  // From the profile in what was recorded of the job: what it would be without what the words of `fix` name,
  // as `c4 whatif --fix`. InvalidArgument: a word is none.
  virtual absl::StatusOr<v1::PageWhatIf> WhatIf(const JobAt& job, const std::vector<std::string>& fix);
  // Of the path master; `job` empty: of all.
  virtual absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job);
  virtual absl::StatusOr<v1::ListPathHistoryReply> PathHistory(const std::string& job);
  virtual absl::StatusOr<v1::GetTopologyReply> Topology();
  virtual absl::StatusOr<v1::ExplainReply> Explain(const std::string& connection);
};

}  // namespace c4::page
