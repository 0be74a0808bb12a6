#include "cli/page/recording_fleet.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <numeric>
#include <openssl/sha.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/recording.h"
#include "cli/page/page_timeline.h"
#include "service/printable.h"
#include "service/status.h"

namespace c4::cli {

// A file without a place, for what reads files.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("c4rec", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  absl::Status Write(std::string_view content) const {
    while (fd_ >= 0 && !content.empty()) {
      const ssize_t written = write(fd_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) break;
      content.remove_prefix(static_cast<size_t>(written));
    }
    if (fd_ >= 0 && content.empty()) return absl::OkStatus();
    return service::ErrnoStatus(errno, "cannot hold the file in memory");
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_); }

 private:
  const int fd_;
};

namespace {

constexpr int64_t kLookEveryNs = 500'000'000;  // at first; longer where a recording is long

bool InTrouble(const v1::ListVerdictsReply& verdicts) {
  return std::any_of(verdicts.verdicts().begin(), verdicts.verdicts().end(), [](const v1::Verdict& verdict) {
    return verdict.state() == v1::VERDICT_STATE_CONFIRMED;
  });
}

// The last part of a path, without what would not stand in an address or on a screen.
std::string PlainName(const std::string& name) {
  constexpr size_t kMost = 80;
  std::string plain = service::Printable(std::filesystem::path(name).filename().string());
  std::replace_if(
      plain.begin(), plain.end(), [](char c) { return c == '/' || c == '?' || c == '#' || c == '%'; }, '_');
  if (plain.size() > kMost) plain = service::Printable(plain.substr(0, kMost));
  return plain.empty() ? "recording.c4rec" : plain;
}

std::string ShortSum(std::string_view content) {
  unsigned char sum[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), sum);
  constexpr size_t kBytes = 4;
  return absl::BytesToHexString({reinterpret_cast<const char*>(sum), kBytes});
}

}  // namespace

absl::StatusOr<RecordingFleet::Recording> RecordingFleet::Read(const std::string& file,
                                                               const std::string& name, size_t most_bytes,
                                                               size_t* bytes) {
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
    if (*bytes < most_bytes) now.matrix = handler->GetMatrix(at);
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
  const auto named = [&](const absl::Status& status) {
    return absl::StrReplaceAll(status.message(), {{file, name}});
  };
  if (!replay.ok()) return absl::InvalidArgumentError(named(replay.status()));
  if (recording.looks.empty()) {
    return absl::InvalidArgumentError(replay->end.ok() ? absl::StrCat(name, " is too short to be shown")
                                                       : named(replay->end));
  }
  if (!replay->end.ok()) recording.fault = named(replay->end);
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

  recording.path = file;
  v1::PageJob& job = recording.job;
  job.set_id(std::filesystem::path(name).stem().string());
  job.set_job(service::Printable(replay->job));
  job.set_state(v1::PAGE_JOB_STATE_RECORDED);
  job.set_master_epoch(1);
  job.set_why(
      absl::StrCat("recording ", service::Printable(std::filesystem::path(name).filename().string())));
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
    absl::StatusOr<Recording> recording = Read(file, file, kMostBytes, &bytes);
    if (!recording.ok()) return recording.status();
    const std::string id = recording->job.id();
    for (int other = 2; fleet->Find(recording->job.id()).ok(); ++other) {
      recording->job.set_id(absl::StrCat(id, "-", other));
    }
    fleet->opened_.push_back(std::make_shared<const Recording>(*std::move(recording)));
  }
  return fleet;
}

absl::StatusOr<std::string> RecordingFleet::Take(const std::string& name, std::string_view content) {
  const std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading.owns_lock()) {
    return absl::UnavailableError("another recording is being read just now; try again in a moment");
  }
  const std::string plain = PlainName(name);
  const std::string id = absl::StrCat(std::filesystem::path(plain).stem().string(), "-", ShortSum(content));
  if (Has(id)) return id;
  const auto file = std::make_shared<const MemoryFile>();
  if (const absl::Status written = file->Write(content); !written.ok()) return written;
  size_t bytes = 0;
  absl::StatusOr<Recording> recording = Read(file->path(), plain, kMostDroppedBytes, &bytes);
  if (!recording.ok()) return recording.status();
  recording->job.set_id(id);
  recording->held = file;
  recording->held_bytes = content.size();
  const std::lock_guard lock(mutex_);
  dropped_.push_back(std::make_shared<const Recording>(*std::move(recording)));
  const auto held_bytes = [this] {
    return std::accumulate(dropped_.begin(), dropped_.end(), size_t{0},
                           [](size_t sum, const Shared& one) { return sum + one->held_bytes; });
  };
  while (dropped_.size() > kMostDropped || (dropped_.size() > 1 && held_bytes() > kMostHeldBytes)) {
    dropped_.pop_front();
  }
  return id;
}

absl::StatusOr<RecordingFleet::Shared> RecordingFleet::Find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  for (const Shared& recording : opened_) {
    if (recording->job.id() == id) return recording;
  }
  for (const Shared& recording : dropped_) {
    if (recording->job.id() == id) return recording;
  }
  return absl::NotFoundError("there is no such recording");
}

// The last look that is not after the moment.
absl::StatusOr<RecordingFleet::Seen> RecordingFleet::LookAt(const page::JobAt& job) const {
  absl::StatusOr<Shared> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  const int64_t unix_ns = job.unix_ns == 0 ? (*recording)->job.shown_unix_ns() : job.unix_ns;
  const std::vector<Look>& looks = (*recording)->looks;
  const auto after = std::upper_bound(looks.begin(), looks.end(), unix_ns,
                                      [](int64_t at, const Look& look) { return at < look.unix_ns; });
  const Look* const look = after == looks.begin() ? &looks.front() : &*std::prev(after);
  return Seen{.of = *std::move(recording), .look = look};
}

absl::Status RecordingFleet::NotKnown() const {
  return absl::FailedPreconditionError("a recording does not have that");
}

std::vector<v1::PageJob> RecordingFleet::Jobs(std::vector<std::string>* notes) {
  const std::lock_guard lock(mutex_);
  std::vector<Shared> all = opened_;
  all.insert(all.end(), dropped_.begin(), dropped_.end());
  std::vector<v1::PageJob> jobs;
  for (const Shared& recording : all) {
    jobs.push_back(recording->job);
    if (!recording->fault.empty()) notes->push_back(service::Printable(recording->fault));
  }
  return jobs;
}

absl::StatusOr<v1::ListVerdictsReply> RecordingFleet::Verdicts(const page::JobAt& job, bool include_cleared) {
  const absl::StatusOr<Seen> seen = LookAt(job);
  if (!seen.ok()) return seen.status();
  v1::ListVerdictsReply reply = seen->look->verdicts;
  if (include_cleared) return reply;
  reply.clear_verdicts();
  for (const v1::Verdict& verdict : seen->look->verdicts.verdicts()) {
    if (verdict.state() != v1::VERDICT_STATE_CLEARED) *reply.add_verdicts() = verdict;
  }
  return reply;
}

absl::StatusOr<v1::GetStatusReply> RecordingFleet::Status(const page::JobAt& job) {
  const absl::StatusOr<Seen> seen = LookAt(job);
  if (!seen.ok()) return seen.status();
  return seen->look->status;
}

absl::StatusOr<v1::GetMatrixReply> RecordingFleet::Matrix(const page::JobAt& job,
                                                          const v1::GetMatrixRequest&) {
  const absl::StatusOr<Seen> seen = LookAt(job);
  if (!seen.ok()) return seen.status();
  v1::GetMatrixReply reply = seen->look->matrix;
  reply.set_unix_ns(seen->look->unix_ns);
  return reply;
}

// A dropped one has no path that says anything to anybody.
absl::Status RecordingFleet::Named(const Recording& recording, const absl::Status& status) {
  return {status.code(), absl::StrReplaceAll(status.message(), {{recording.path, recording.job.id()}})};
}

absl::StatusOr<v1::PageTimeline> RecordingFleet::Timeline(const page::JobAt& job,
                                                          const page::TimelineWindow& window) {
  const absl::StatusOr<Shared> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  page::TimelineWindow wanted = window;
  if (wanted.to_unix_ns == 0) {
    wanted.to_unix_ns = job.unix_ns == 0 ? (*recording)->job.shown_unix_ns() : job.unix_ns;
  }
  const std::lock_guard lock(timeline_);
  absl::StatusOr<v1::PageTimeline> timeline = TimelineOf({(*recording)->path}, wanted);
  if (!timeline.ok()) return Named(**recording, timeline.status());
  timeline->set_fault((*recording)->fault);
  return timeline;
}

absl::StatusOr<v1::PageWhatIf> RecordingFleet::WhatIf(const page::JobAt& job,
                                                      const std::vector<std::string>& fix) {
  const absl::StatusOr<Shared> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  absl::StatusOr<v1::PageWhatIf> page = what_if_.Ask((*recording)->path, fix);
  if (!page.ok()) return Named(**recording, page.status());
  return page;
}

absl::StatusOr<v1::GetIterationsReply> RecordingFleet::Iterations(const page::JobAt& job, uint64_t from) {
  const absl::StatusOr<Shared> recording = Find(job.id);
  if (!recording.ok()) return recording.status();
  v1::GetIterationsReply reply = (*recording)->iterations;
  reply.clear_iterations();
  for (const v1::SeriesIteration& iteration : (*recording)->iterations.iterations()) {
    const bool is_before = job.unix_ns == 0 || iteration.began_unix_ns() <= job.unix_ns;
    if (iteration.number() >= from && is_before) *reply.add_iterations() = iteration;
  }
  return reply;
}

}  // namespace c4::cli
