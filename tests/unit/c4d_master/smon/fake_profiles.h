// Where a test's profiles come from: jobs that were made up (benchmarks/synthetic_job.h), steps that pass
// when the test says so. And work that is done when the test says so.
#pragma once

#include <optional>
#include <utility>

#include "benchmarks/synthetic_job.h"
#include "c4d_master/smon/profile_source.h"
#include "c4d_master/smon/smon_work.h"

namespace c4::c4d {

inline ProfiledJob MadeUp(const benchmarks::SyntheticJob& job) {
  benchmarks::ExecutedJob executed = benchmarks::Execute(job);
  ProfiledJob profile;
  profile.records = std::move(executed.records);
  profile.shape.dp_size = job.shape.dp_size;
  profile.shape.pp_size = job.shape.pp_size;
  return profile;
}

class FakeProfiles final : public ProfileSource {
 public:
  absl::Status Start(Now) override {
    if (collecting) return absl::FailedPreconditionError("a session runs already");
    if (!start.ok()) return start;
    collecting = true;
    steps = 0;
    return absl::OkStatus();
  }
  int CompleteSteps() const override { return steps; }
  absl::StatusOr<ProfiledJob> Finish(Now) override {
    if (!collecting) return absl::FailedPreconditionError("no session runs");
    collecting = false;
    if (!finish.ok()) return finish;
    ProfiledJob profile = MadeUp(job);
    profile.not_seen = not_seen;
    return profile;
  }

  benchmarks::SyntheticJob job;
  std::vector<std::string> not_seen;
  absl::Status start;
  absl::Status finish;
  bool collecting = false;
  int steps = 0;
};

class FakeWork final : public SmonWork {
 public:
  void Analyse(uint64_t session, ProfiledJob profile) override {
    waiting.emplace_back(session, std::move(profile));
  }
  std::vector<Analysed> TakeAnalysed() override {
    std::vector<Analysed> results;
    if (!analyse) return results;
    for (const auto& [session, profile] : waiting) results.push_back({session, AnalyseProfile(profile, 1)});
    waiting.clear();
    return results;
  }

  bool analyse = true;
  std::vector<std::pair<uint64_t, ProfiledJob>> waiting;
};

}  // namespace c4::c4d
