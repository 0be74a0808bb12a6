#include "c4a/segment_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service/text.h"

namespace c4::agent {
namespace {

const SegmentLimits kLimits;
constexpr int64_t kExitWaitNs = 2'000'000'000;  // a process gives up its lock a moment before it has ended

absl::Status ToStatus(const ReadStatus& status) {
  switch (status.code()) {
    case ReadStatus::Code::kOk:
      return absl::OkStatus();
    case ReadStatus::Code::kUnreadable:
      return absl::UnavailableError(status.text());
    case ReadStatus::Code::kRefused:
      return absl::FailedPreconditionError(status.text());
    case ReadStatus::Code::kSuspect:
      break;
  }
  return absl::DataLossError(status.text());
}

// The lock may be held by somebody who is not the writer (a tool that looks at the file, a process id that
// was reused between two looks): its start time tells. In another time namespace the writer sees itself
// start at another time; its own process id has to do then.
bool IsWriter(const ProcReader& proc, const ProcessInfo& info, const wire::ProcessIdentity& writer) {
  if (info.stat.start_time_ticks == writer.start_time_ticks) return true;
  return info.pid_in_namespace == writer.pid && proc.InOtherTimeNamespace(info.stat.pid);
}

int64_t OwnerOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? static_cast<int64_t>(status.st_uid) : -1;
}

}  // namespace

SegmentFile::SegmentFile(std::string name, int fd, dev_t device, ino_t inode)
    : name_(std::move(name)), fd_(fd), device_(device), inode_(inode), owner_uid_(OwnerOf(fd)), source_(fd) {}

SegmentFile::~SegmentFile() {
  close(fd_);
}

absl::Status SegmentFile::Start(RingStart start) {
  C4_RETURN_IF_NOT_OK(ToStatus(ReadSegment(&source_, kLimits, &snapshot_)));
  cursors_.assign(header().rings.count, {});
  if (start == RingStart::kNewest) {
    for (uint32_t ring = 0; ring < header().rings_used; ++ring) {
      C4_RETURN_IF_NOT_OK(ToStatus(SkipRing(&source_, header(), ring, &cursors_[ring])));
    }
  }
  pid_ = header().header.writer.pid;
  return absl::OkStatus();
}

std::optional<uint32_t> SegmentFile::LockHolder() const {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  // Whoever may read the file can hold a lock for reading; the writer's is one for writing.
  if (fcntl(fd_, F_GETLK, &lock) != 0 || lock.l_type != F_WRLCK) return std::nullopt;
  return lock.l_pid > 0 ? static_cast<uint32_t>(lock.l_pid) : 0;
}

void SegmentFile::Update(const ProcReader& proc, const std::optional<ClockRelation>& tsc, int64_t now_ns,
                         ExitWatch* exits) {
  // Health first: a process that ends in between is then read to its end at the next scan.
  UpdateHealth(proc, now_ns, exits);
  if (read_after_end_ || !suspicion_.empty()) return;
  ReadContent(tsc, now_ns);
  if (!alive_) read_after_end_ = true;
}

void SegmentFile::Gone(int64_t now_ns) {
  alive_ = false;
  health_.Gone(now_ns);
}

void SegmentFile::TakeExit(int64_t now_ns, ExitWatch* exits) {
  const std::optional<ProcessExit> exit = exits->ExitOf(pid_);
  if (exit.has_value()) health_.Exited(*exit);
  if (!exit.has_value() && now_ns - health().state_since_ns < kExitWaitNs) return;
  StopWatching(exits);
}

void SegmentFile::StopWatching(ExitWatch* exits) {
  if (exit_watched_) exits->Forget(pid_);
  exit_watched_ = false;
}

void SegmentFile::UpdateHealth(const ProcReader& proc, int64_t now_ns, ExitWatch* exits) {
  if (!alive_) {  // a writer that is gone does not come back
    if (exit_watched_) TakeExit(now_ns, exits);
    return;
  }
  const std::optional<uint32_t> holder = LockHolder();
  if (!holder.has_value()) {
    Gone(now_ns);
    if (exit_watched_) TakeExit(now_ns, exits);
    return;
  }
  if (*holder == 0) {
    health_.Update(std::nullopt, now_ns);
    return;
  }
  const absl::StatusOr<ProcessInfo> info = proc.Read(*holder);
  if (info.ok() && !IsWriter(proc, *info, header().header.writer)) {
    Gone(now_ns);
    return;
  }
  pid_ = *holder;
  // The writer holds the lock and is who it was: its pid is its own.
  if (info.ok() && !exit_watched_) exit_watched_ = exits->Watch(pid_);
  health_.Update(info.ok() ? std::optional(*info) : std::nullopt, now_ns);
}

void SegmentFile::ReadContent(const std::optional<ClockRelation>& tsc, int64_t now_ns) {
  SegmentSnapshot now;
  if (const ReadStatus status = ReadSegment(&source_, kLimits, &now); !status.ok()) {
    Suspect(status.text());
    return;
  }
  const wire::SegmentHeader& before = header();
  const bool same_layout = memcmp(&before.header, &now.header.header, sizeof before.header) == 0 &&
                           before.ring_capacity == now.header.ring_capacity &&
                           memcmp(&before.rings, &now.header.rings, sizeof before.rings) == 0 &&
                           before.clock_kind == now.header.clock_kind;
  if (!same_layout) {
    Suspect("its layout changed while it was in use");
    return;
  }
  if (const ReadStatus status = CheckProgress(snapshot_, now); !status.ok()) {
    Suspect(status.text());
    return;
  }
  if (now.header.clock_kind == wire::kClockTsc) {
    if (!tsc.has_value()) {
      Suspect("its times are in ticks of a time stamp counter that this node does not offer to the agent");
      return;
    }
    clock_ = *tsc;
  }
  snapshot_ = std::move(now);
  tally_.Learn(snapshot_);
  ReadRings(now_ns);
}

void SegmentFile::ReadRings(int64_t now_ns) {
  RingRecords records;
  const bool fine = header().level >= wire::kLevelFine;
  for (uint32_t ring = 0; ring < header().rings_used; ++ring) {
    records.records.clear();
    records.lost = 0;
    const ReadStatus status = ReadRing(&source_, header(), ring, &cursors_[ring], &records);
    records_read_ += records.records.size();
    records_lost_ += records.lost;
    (void)tally_.Add(records.records, clock_);
    if (fine) profile_.Add(records.records, tally_, clock_);
    if (records.lost > 0) iterations_.Lost();
    iterations_.Add(records.records, tally_, clock_);
    if (!status.ok()) {
      Suspect(status.text());
      return;
    }
  }
  iterations_.Settle(snapshot_, now_ns);
}

void SegmentFile::Suspect(const std::string& why) {
  if (suspicion_.empty()) suspicion_ = why;
}

}  // namespace c4::agent
