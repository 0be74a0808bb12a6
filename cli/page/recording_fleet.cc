#include "cli/page/recording_fleet.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/recording.h"
#include "service/printable.h"
#include "service/status.h"

namespace c4::cli {
namespace {

constexpr int64_t kLookEveryNs = 500'000'000;  // at first; longer where a recording is long

bool InTrouble(const v1::ListVerdictsReply& verdicts) {
  return std::any_of(verdicts.verdicts().begin(), verdicts.verdicts().end(), [](const v1::Verdict& verdict) {
    return verdict.state() == v1::VERDICT_STATE_CONFIRMED;
  });
}

absl::Status NotRecorded(const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("a recording has no ", what));
}

}  // namespace

absl::StatusOr<RecordingFleet::Recording> RecordingFleet::Read(const std::string& file, size_t* bytes) {
  Recording recording;
  int64_t every_ns = kLookEveryNs;
  int64_t next_ns = 0;
  const auto look = [&](c4d::C4dHandler* handler, c4d::Now at) {
    if (at.monotonic_ns < next_ns) return;
    next_ns = at.monotonic_ns + every_ns;
    Look now{.unix_ns = at.unix_ns,
             .verdicts = handler->ListVerdicts(/*include_cleared=*/true),
             .status = handler->GetStatus(at),
             .matrix = {}};
    if (*bytes < kMostBytes) now.matrix = handler->GetMatrix(at);
    *bytes += now.verdicts.ByteSizeLong() + now.status.ByteSizeLong() + now.matrix.ByteSizeLong();
    recording.iterations = handler->GetIterations(0, at);
    recording.looks.push_back(std::move(now));
    // Twice as far apart from now on, and every other one of before is enough.
    if (recording.looks.size() <= kMostMoments) return;
    for (size_t i = 1; 2 * i < recording.looks.size(); ++i)
      recording.looks[i] = std::move(recording.looks[2 * i]);
    recording.looks.resize((recording.looks.size() + 1) / 2);
    every_ns *= 2;
  };
  const absl::StatusOr<c4d::Replay> replay = c4d::ReplayRecording(file, {}, {}, look);
  if (!replay.ok()) return replay.status();
  if (recording.looks.empty())
    return absl::InvalidArgumentError(absl::StrCat(file, " is too short to be shown"));
  if (!replay->end.ok()) recording.fault = std::string(replay->end.message());
  Look& last = recording.looks.back();
  last.verdicts = replay->verdicts;
  last.status = replay->status;
  last.unix_ns = std::max(last.unix_ns, replay->end_unix_ns);
  for (Look& each : recording.looks) {
    service::MakePrintable(&each.verdicts);
    service::MakePrintable(&each.status);
    service::MakePrintable(&each.matrix);
  }
  service::MakePrintable(&recording.iterations);

  v1::PageJob& job = recording.job;
  job.set_id(std::filesystem::path(file).stem().string());
  job.set_job(service::Printable(replay->job));
  job.set_state(v1::PAGE_JOB_STATE_RECORDED);
  job.set_master_epoch(1);
  job.set_why(
      absl::StrCat("recording ", service::Printable(std::filesystem::path(file).filename().string())));
  job.set_from_unix_ns(recording.looks.front().unix_ns);
  job.set_to_unix_ns(last.unix_ns);
  job.set_began_unix_ns(job.from_unix_ns());
  job.set_ended_unix_ns(job.to_unix_ns());
  job.set_shown_unix_ns(job.to_unix_ns());
  for (const Look& each : recording.looks) {
    if (InTrouble(each.verdicts)) job.set_shown_unix_ns(each.unix_ns);
  }
  return recording;
}

absl::StatusOr<std::unique_ptr<RecordingFleet>> RecordingFleet::Open(const std::vector<std::string>& files) {
  auto fleet = std::make_unique<RecordingFleet>();
  size_t bytes = 0;
  for (const std::string& file : files) {
    absl::StatusOr<Recording> recording = Read(file, &bytes);
    if (!recording.ok()) return recording.status();
    const std::string id = recording->job.id();
    for (int other = 2; fleet->Find(recording->job.id()).ok(); ++other) {
      recording->job.set_id(absl::StrCat(id, "-", other));
    }
    fleet->recordings_.push_back(*std::move(recording));
  }
  return fleet;
}

absl::StatusOr<const RecordingFleet::Recording*> RecordingFleet::Find(const std::string& id) const {
  for (const Recording& recording : recordings_) {
    if (recording.job.id() == id) return &recording;
  }
  return absl::NotFoundError("there is no such recording");
}

// The last look that is not after the moment.
absl::StatusOr<const RecordingFleet::Look*> RecordingFleet::LookAt(const page::JobAt& job) const {
  const absl::StatusOr<const Recording*> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  const int64_t unix_ns = job.unix_ns == 0 ? (*recording)->job.shown_unix_ns() : job.unix_ns;
  const std::vector<Look>& looks = (*recording)->looks;
  const auto after = std::upper_bound(looks.begin(), looks.end(), unix_ns,
                                      [](int64_t at, const Look& look) { return at < look.unix_ns; });
  return after == looks.begin() ? &looks.front() : &*std::prev(after);
}

std::vector<v1::PageJob> RecordingFleet::Jobs(std::vector<std::string>* notes) {
  std::vector<v1::PageJob> jobs;
  for (const Recording& recording : recordings_) {
    jobs.push_back(recording.job);
    if (!recording.fault.empty()) notes->push_back(service::Printable(recording.fault));
  }
  return jobs;
}

absl::StatusOr<v1::ListVerdictsReply> RecordingFleet::Verdicts(const page::JobAt& job, bool include_cleared) {
  const absl::StatusOr<const Look*> look = LookAt(job);
  if (!look.ok()) return look.status();
  v1::ListVerdictsReply reply = (*look)->verdicts;
  if (include_cleared) return reply;
  reply.clear_verdicts();
  for (const v1::Verdict& verdict : (*look)->verdicts.verdicts()) {
    if (verdict.state() != v1::VERDICT_STATE_CLEARED) *reply.add_verdicts() = verdict;
  }
  return reply;
}

absl::StatusOr<v1::GetStatusReply> RecordingFleet::Status(const page::JobAt& job) {
  const absl::StatusOr<const Look*> look = LookAt(job);
  if (!look.ok()) return look.status();
  return (*look)->status;
}

absl::StatusOr<v1::GetMatrixReply> RecordingFleet::Matrix(const page::JobAt& job,
                                                          const v1::GetMatrixRequest&) {
  const absl::StatusOr<const Look*> look = LookAt(job);
  if (!look.ok()) return look.status();
  v1::GetMatrixReply reply = (*look)->matrix;
  reply.set_unix_ns((*look)->unix_ns);
  return reply;
}

absl::StatusOr<v1::GetIterationsReply> RecordingFleet::Iterations(const page::JobAt& job, uint64_t from) {
  const absl::StatusOr<const Recording*> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  v1::GetIterationsReply reply = (*recording)->iterations;
  reply.clear_iterations();
  for (const v1::SeriesIteration& iteration : (*recording)->iterations.iterations()) {
    const bool is_before = job.unix_ns == 0 || iteration.began_unix_ns() <= job.unix_ns;
    if (iteration.number() >= from && is_before) *reply.add_iterations() = iteration;
  }
  return reply;
}

absl::StatusOr<v1::ListAlertsReply> RecordingFleet::Alerts(const page::JobAt&) {
  return NotRecorded("alerts");
}
absl::StatusOr<v1::GetRecoveryReply> RecordingFleet::Recovery(const page::JobAt&) {
  return NotRecorded("recovery");
}
absl::StatusOr<v1::ListSessionsReply> RecordingFleet::Sessions(const page::JobAt&) {
  return NotRecorded("profiling sessions");
}
absl::StatusOr<v1::GetSessionReply> RecordingFleet::Session(const page::JobAt&, uint64_t) {
  return NotRecorded("profiling sessions");
}
absl::StatusOr<v1::ListPathsReply> RecordingFleet::Paths(const std::string&) {
  return NotRecorded("paths");
}
absl::StatusOr<v1::GetTopologyReply> RecordingFleet::Topology() {
  return NotRecorded("topology");
}
absl::StatusOr<v1::ExplainReply> RecordingFleet::Explain(const std::string&) {
  return NotRecorded("paths");
}

}  // namespace c4::cli
