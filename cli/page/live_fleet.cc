#include "cli/page/live_fleet.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "cli/page/page_timeline.h"
#include "cli/trace/job_recordings.h"
#include "cli/verbs/ended_job.h"
#include "service/address.h"
#include "service/directory.h"
#include "service/listen.h"
#include "service/printable.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

// A page waits for one answer at a time, and a master that works gives it in milliseconds.
constexpr absl::Duration kCallLimit = absl::Seconds(2);
constexpr int64_t kReadEndedEveryMs = 10'000;

std::string EndedId(const JobRecord& record) {
  return std::filesystem::path(record.directory).filename().string();
}

absl::Status Gone() {
  return absl::NotFoundError("this job is over, and that was not kept");
}

v1::PageJob PageJobOf(const service::MasterEntry& entry) {
  v1::PageJob job;
  job.set_id(service::Printable(entry.job));
  job.set_job(service::Printable(entry.job));
  job.set_state(v1::PAGE_JOB_STATE_RUNNING);
  job.set_host(service::Printable(entry.host));
  job.set_master_epoch(entry.epoch);
  job.set_began_unix_ns(static_cast<int64_t>(entry.epoch));  // a master's epoch is when it began
  return job;
}

v1::PageJob PageJobOf(const JobRecord& record) {
  v1::PageJob job;
  job.set_id(EndedId(record));
  job.set_job(service::Printable(record.job));
  job.set_state(v1::PAGE_JOB_STATE_ENDED);
  job.set_host(service::Printable(record.host));
  job.set_ranks(static_cast<uint32_t>(std::max(record.ranks, 0)));
  job.set_began_unix_ns(record.started_unix_ns);
  job.set_ended_unix_ns(EndOf(record));
  std::string why = record.why;
  if (why.empty())
    why = LifeOf(record) == JobLife::kLost ? "its launcher was killed" : absl::StrJoin(record.command, " ");
  job.set_why(service::Printable(why));
  return job;
}

}  // namespace

LiveFleet::LiveFleet(Options options)
    : options_(std::move(options)),
      masters_(
          absl::StrCat(options_.master.base_dir.empty() ? service::DefaultRunDir() : options_.master.base_dir,
                       "/masters")) {}

std::vector<v1::PageJob> LiveFleet::Jobs(std::vector<std::string>* notes) {
  std::vector<std::string> faults;
  const absl::StatusOr<std::vector<service::MasterEntry>> listed =
      service::MasterDirectory(masters_).List(&faults);
  if (!listed.ok()) notes->push_back(service::Printable(std::string(listed.status().message())));
  for (const std::string& fault : faults) notes->push_back(service::Printable(fault));
  std::vector<service::MasterEntry> entries;
  if (listed.ok()) entries = PreferBelieved(*listed, service::Believed());
  // What a killed master left behind is no job.
  std::erase_if(entries, [](const service::MasterEntry& entry) {
    return entry.host == service::HostName() && !ReadProcessStat(static_cast<pid_t>(entry.pid)).has_value();
  });

  const std::lock_guard lock(mutex_);
  if (const int64_t now_ms = service::MonotonicMs();
      ended_read_ms_ == 0 || now_ms - ended_read_ms_ > kReadEndedEveryMs) {
    ended_read_ms_ = now_ms;
    ended_.clear();
    for (const JobRecord& record : ListJobRecords(options_.log_dir)) {
      if (ended_.size() >= options_.ended_jobs) break;
      if (LifeOf(record) != JobLife::kRunning) ended_.emplace(EndedId(record), record);
    }
  }
  std::vector<v1::PageJob> jobs;
  std::set<std::string> there;
  const uint64_t path_epoch = path_entry_.epoch;
  path_entry_ = {};
  for (const service::MasterEntry& entry : entries) {
    if (entry.job == service::kPathMasterName) {
      path_entry_ = entry;
      continue;
    }
    v1::PageJob job = PageJobOf(entry);
    if (!there.insert(job.id()).second) continue;
    Live& live = live_[job.id()];
    if (live.entry.epoch != entry.epoch || live.entry.address != entry.address)
      live = {.entry = entry, .client = nullptr};
    jobs.push_back(std::move(job));
  }
  if (path_entry_.epoch != path_epoch) path_client_ = nullptr;
  std::erase_if(live_, [&](const auto& item) { return !there.contains(item.first); });
  for (const auto& [id, record] : ended_) {
    if (there.insert(id).second) jobs.push_back(PageJobOf(record));
  }
  return jobs;
}

bool LiveFleet::HasPathMaster() {
  const std::lock_guard lock(mutex_);
  return path_entry_.epoch != 0;
}

absl::StatusOr<std::shared_ptr<const MasterClient>> LiveFleet::ClientOf(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return Gone();
  Live& live = found->second;
  if (live.client == nullptr) {
    absl::StatusOr<std::unique_ptr<MasterClient>> opened =
        MasterClient::Open(service::AddressOf(live.entry), options_.master);
    if (!opened.ok()) return opened.status();
    live.client = *std::move(opened);
  }
  return live.client;
}

absl::StatusOr<std::shared_ptr<const PathClient>> LiveFleet::PathMaster() {
  {
    const std::lock_guard lock(mutex_);
    if (path_client_ != nullptr) return path_client_;
  }
  PathMasterOptions options;
  options.base_dir = options_.master.base_dir;
  options.security = options_.master.security;
  absl::StatusOr<std::unique_ptr<PathClient>> opened = PathClient::Open(options);
  if (!opened.ok()) return opened.status();
  const std::lock_guard lock(mutex_);
  path_client_ = *std::move(opened);
  return path_client_;
}

absl::StatusOr<JobRecord> LiveFleet::EndedOf(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = ended_.find(id);
  if (live_.contains(id) || found == ended_.end()) return Gone();
  return found->second;
}

absl::StatusOr<v1::ListVerdictsReply> LiveFleet::Verdicts(const page::JobAt& job, bool include_cleared) {
  if (const absl::StatusOr<JobRecord> record = EndedOf(job.id); record.ok()) {
    absl::StatusOr<v1::ListVerdictsReply> reply = EndedVerdicts(*record, include_cleared);
    if (reply.ok()) service::MakePrintable(&*reply);
    return reply;
  }
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->ListVerdicts(include_cleared, kCallLimit);
}

absl::StatusOr<v1::GetStatusReply> LiveFleet::Status(const page::JobAt& job) {
  if (const absl::StatusOr<JobRecord> record = EndedOf(job.id); record.ok()) {
    absl::StatusOr<v1::GetStatusReply> reply = EndedStatus(*record);
    if (reply.ok()) service::MakePrintable(&*reply);
    return reply;
  }
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->GetStatus(kCallLimit);
}

absl::StatusOr<v1::GetMatrixReply> LiveFleet::Matrix(const page::JobAt& job,
                                                     const v1::GetMatrixRequest& request) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->GetMatrix(kCallLimit, request);
}

absl::StatusOr<v1::GetIterationsReply> LiveFleet::Iterations(const page::JobAt& job, uint64_t from) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->GetIterations(from, kCallLimit);
}

absl::StatusOr<v1::ListAlertsReply> LiveFleet::Alerts(const page::JobAt& job) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->ListAlerts(true, kCallLimit);
}

absl::StatusOr<v1::GetRecoveryReply> LiveFleet::Recovery(const page::JobAt& job) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  constexpr uint32_t kNotes = 200;
  return (*client)->GetRecovery(kNotes, kCallLimit);
}

absl::StatusOr<v1::ListSessionsReply> LiveFleet::Sessions(const page::JobAt& job) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  constexpr uint32_t kSessions = 100;
  return (*client)->ListSessions(kSessions, kCallLimit);
}

absl::StatusOr<v1::GetSessionReply> LiveFleet::Session(const page::JobAt& job, uint64_t number) {
  const absl::StatusOr<std::shared_ptr<const MasterClient>> client = ClientOf(job.id);
  if (!client.ok()) return client.status();
  return (*client)->GetSession(number, kCallLimit);
}

absl::StatusOr<std::vector<std::string>> LiveFleet::RecordingsOf(const std::string& id) {
  absl::StatusOr<JobRecord> of = EndedOf(id);
  if (!of.ok()) {
    for (JobRecord& record : ListJobRecords(options_.log_dir)) {
      if (LifeOf(record) != JobLife::kRunning || service::Printable(record.job) != id) continue;
      of = std::move(record);
      break;
    }
  }
  std::vector<std::string> recordings = of.ok() ? RecordingsIn(of->directory) : std::vector<std::string>();
  if (!recordings.empty()) return recordings;
  return absl::FailedPreconditionError(
      "nothing of this job's last minutes is recorded on this host: `c4 run` does it; of any other job "
      "`c4 record --fine -o FILE` does, and `c4 page --recording FILE` shows it");
}

absl::StatusOr<v1::PageTimeline> LiveFleet::Timeline(const page::JobAt& job,
                                                     const page::TimelineWindow& window) {
  const absl::StatusOr<std::vector<std::string>> recordings = RecordingsOf(job.id);
  if (!recordings.ok()) return recordings.status();
  const std::lock_guard lock(timeline_);
  return TimelineOf(*recordings, window);
}

// A profile is as long as some steps, so it stands in one of the files: the newest that has one.
absl::StatusOr<v1::PageWhatIf> LiveFleet::WhatIf(const page::JobAt& job,
                                                 const std::vector<std::string>& fix) {
  const absl::StatusOr<std::vector<std::string>> recordings = RecordingsOf(job.id);
  if (!recordings.ok()) return recordings.status();
  absl::StatusOr<v1::PageWhatIf> page = absl::UnknownError("");
  for (auto file = recordings->rbegin(); file != recordings->rend(); ++file) {
    page = what_if_.Ask(*file, fix);
    if (!absl::IsFailedPrecondition(page.status())) break;
  }
  return page;
}

absl::StatusOr<v1::ListPathsReply> LiveFleet::Paths(const std::string& job) {
  const absl::StatusOr<std::shared_ptr<const PathClient>> client = PathMaster();
  if (!client.ok()) return client.status();
  v1::ListPathsRequest request;
  request.set_job(job);
  return (*client)->ListPaths(request);
}

absl::StatusOr<v1::ListPathHistoryReply> LiveFleet::PathHistory(const std::string& job) {
  const absl::StatusOr<std::shared_ptr<const PathClient>> client = PathMaster();
  if (!client.ok()) return client.status();
  v1::ListPathHistoryRequest request;
  request.set_job(job);
  request.set_most(page::kMostPathEvents);
  return (*client)->ListPathHistory(request);
}

absl::StatusOr<v1::GetTopologyReply> LiveFleet::Topology() {
  const absl::StatusOr<std::shared_ptr<const PathClient>> client = PathMaster();
  if (!client.ok()) return client.status();
  return (*client)->GetTopology();
}

absl::StatusOr<v1::ExplainReply> LiveFleet::Explain(const std::string& connection) {
  const absl::StatusOr<std::shared_ptr<const PathClient>> client = PathMaster();
  if (!client.ok()) return client.status();
  return (*client)->Explain(connection);
}

}  // namespace c4::cli
