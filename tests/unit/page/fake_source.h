// Jobs that a test makes up, for the page. Counts how often each thing was asked for.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "page/fleet_source.h"

namespace c4::page::test {

class FakeSource final : public FleetSource {
 public:
  struct Job {
    v1::PageJob job;
    v1::ListVerdictsReply verdicts;
    v1::GetStatusReply status;
    v1::GetMatrixReply matrix;
    std::string silent;  // why it does not answer; empty: it does
  };

  Job& Add(const std::string& id) {
    Job& job = jobs_[id];
    job.job.set_id(id);
    job.job.set_job(id);
    job.job.set_state(v1::PAGE_JOB_STATE_RUNNING);
    job.job.set_master_epoch(1);
    job.verdicts.set_job(id);
    job.verdicts.set_agents(1);
    return job;
  }
  void Remove(const std::string& id) { jobs_.erase(id); }

  std::vector<v1::PageJob> Jobs(std::vector<std::string>* notes) override {
    ++list_calls;
    if (!note.empty()) notes->push_back(note);
    std::vector<v1::PageJob> jobs;
    for (const auto& [id, job] : jobs_) jobs.push_back(job.job);
    return jobs;
  }
  bool HasPathMaster() override { return false; }
  absl::StatusOr<v1::ListVerdictsReply> Verdicts(const JobAt& job, bool include_cleared) override {
    ++verdict_calls;
    const auto found = Find(job);
    if (!found.ok()) return found.status();
    v1::ListVerdictsReply reply = (*found)->verdicts;
    if (include_cleared) return reply;
    reply.clear_verdicts();
    for (const v1::Verdict& verdict : (*found)->verdicts.verdicts()) {
      if (verdict.state() != v1::VERDICT_STATE_CLEARED) *reply.add_verdicts() = verdict;
    }
    return reply;
  }
  absl::StatusOr<v1::GetStatusReply> Status(const JobAt& job) override {
    ++status_calls;
    const auto found = Find(job);
    if (!found.ok()) return found.status();
    return (*found)->status;
  }
  absl::StatusOr<v1::GetMatrixReply> Matrix(const JobAt& job, const v1::GetMatrixRequest&) override {
    ++matrix_calls;
    const auto found = Find(job);
    if (!found.ok()) return found.status();
    return (*found)->matrix;
  }
  absl::StatusOr<v1::GetIterationsReply> Iterations(const JobAt&, uint64_t) override {
    return v1::GetIterationsReply();
  }
  absl::StatusOr<v1::PageTimeline> Timeline(const JobAt&, const TimelineWindow& window) override {
    timeline_window = window;
    return v1::PageTimeline();
  }
  absl::StatusOr<v1::PageWhatIf> WhatIf(const JobAt&, const std::vector<std::string>& fix) override {
    what_if_fix = fix;
    return v1::PageWhatIf();
  }
  absl::StatusOr<v1::ListAlertsReply> Alerts(const JobAt&) override { return v1::ListAlertsReply(); }
  absl::StatusOr<v1::GetRecoveryReply> Recovery(const JobAt&) override { return v1::GetRecoveryReply(); }
  absl::StatusOr<v1::ListSessionsReply> Sessions(const JobAt&) override { return v1::ListSessionsReply(); }
  absl::StatusOr<v1::GetSessionReply> Session(const JobAt&, uint64_t) override { return session; }
  absl::StatusOr<v1::ListPathsReply> Paths(const std::string& job) override {
    paths_of = job;
    return v1::ListPathsReply();
  }
  absl::StatusOr<v1::ListPathHistoryReply> PathHistory(const std::string& job) override {
    history_of = job;
    return v1::ListPathHistoryReply();
  }
  absl::StatusOr<v1::GetTopologyReply> Topology() override { return v1::GetTopologyReply(); }
  absl::StatusOr<v1::ExplainReply> Explain(const std::string&) override {
    v1::ExplainReply reply;
    reply.mutable_connection()->set_job("theirs");
    return reply;
  }

  std::string note;
  std::string paths_of;
  std::string history_of;
  TimelineWindow timeline_window;
  std::vector<std::string> what_if_fix;
  v1::GetSessionReply session;
  std::atomic<int> list_calls = 0;
  std::atomic<int> verdict_calls = 0;
  std::atomic<int> status_calls = 0;
  std::atomic<int> matrix_calls = 0;

 private:
  absl::StatusOr<const Job*> Find(const JobAt& at) const {
    const auto found = jobs_.find(at.id);
    if (found == jobs_.end()) return absl::NotFoundError("gone");
    if (!found->second.silent.empty()) return absl::UnavailableError(found->second.silent);
    return &found->second;
  }
  std::map<std::string, Job> jobs_;
};

inline v1::Verdict* AddVerdict(FakeSource::Job* job, const std::string& id, v1::VerdictState state,
                               const std::string& host) {
  v1::Verdict* verdict = job->verdicts.add_verdicts();
  verdict->set_id(id);
  verdict->set_job(job->job.job());
  verdict->set_state(state);
  verdict->set_syndrome(v1::SYNDROME_NON_COMMUNICATION_HANG);
  verdict->mutable_culprit()->set_kind(v1::CULPRIT_KIND_RANK);
  verdict->mutable_culprit()->set_rank(2);
  verdict->mutable_culprit()->set_host(host);
  verdict->set_since_unix_ns(1'700'000'000'000'000'000);
  if (state != v1::VERDICT_STATE_SUSPECTED) verdict->set_confirmed_unix_ns(1'700'000'002'000'000'000);
  return verdict;
}

}  // namespace c4::page::test
