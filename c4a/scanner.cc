#include "c4a/scanner.h"

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <map>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <tuple>
#include <unistd.h>

#include "service/log.h"
#include "service/printable.h"
#include "service/run_dir.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMaxSegments = 4096;  // a node has some tens of ranks; the rest is noise
constexpr int64_t kHiddenKeptNs = 60'000'000'000;
constexpr auto kFirstClockBase = std::chrono::milliseconds(10);

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

bool IsSegmentName(std::string_view name) {
  return name.ends_with(wire::kSegmentSuffix);
}

// Names come from whoever may write to the directory.
std::string Shown(const std::string& name) {
  return service::Printable(name);
}

bool IsLocked(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace

Scanner::Scanner(ScannerOptions options, ProcReader proc, const service::Clock& clock)
    : options_(std::move(options)), proc_(std::move(proc)), clock_(clock) {
  SampleClock();
  std::this_thread::sleep_for(kFirstClockBase);
}

void Scanner::SampleClock() {
  if (const std::optional<ClockSample> sample = SampleTsc()) tsc_.Add(*sample);
}

absl::Status Scanner::Scan() {
  const std::unique_ptr<DIR, CloseDirectory> directory(opendir(options_.run_dir.c_str()));
  if (directory == nullptr) {
    return service::ErrnoStatus(errno, Concat("cannot read the run directory ", options_.run_dir));
  }
  SampleClock();
  scanned_monotonic_ns_ = clock_.MonotonicNs();
  scanned_unix_ns_ = clock_.UnixNs();
  const int fd = dirfd(directory.get());
  seen_.clear();
  for (auto& [name, refusal] : refused_) refusal.seen = false;
  while (const dirent* entry =
             readdir(directory.get())) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    const std::string name = entry->d_name;
    if (!IsSegmentName(name)) continue;
    if (name.front() == '.') {
      SweepHidden(fd, name);
    } else if (segments_.contains(name) || (seen_.size() < kMaxSegments && segments_.size() < kMaxSegments)) {
      Visit(fd, name);
    } else if (!told_crowded_) {
      told_crowded_ = true;
      service::LogWarning(options_.run_dir, " holds more than ", kMaxSegments,
                          " segments: the rest is left out");
    }
  }
  KeepUnlinked();
  std::erase_if(refused_, [](const auto& entry) { return !entry.second.seen; });
  UpdateAll(fd);
  FindStrays();
  std::erase_if(told_, [&](const auto& name) { return !segments_.contains(name); });
  figures_.processes = segments_.size();
  figures_.segments_refused = refused_.size();
  figures_.refused.clear();
  for (const auto& [name, refusal] : refused_) {
    RefusedFiles& of_owner = figures_.refused[refusal.owner_uid];
    if (++of_owner.files == 1) of_owner.why = Concat(refusal.why, " (", Shown(name), ")");
  }
  first_scan_ = false;
  return absl::OkStatus();
}

// Makes a SegmentFile of a new name, or of a known name that stands for another file now.
void Scanner::Visit(int directory, const std::string& name) {
  struct stat status {};
  if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;  // gone since the listing
  seen_.insert(name);
  const auto known = segments_.find(name);
  if (known != segments_.end() && known->second->IsFile(status.st_dev, status.st_ino)) return;
  if (known != segments_.end()) {
    known->second->StopWatching(&exits_);
    segments_.erase(known);
    told_.erase(name);
  }
  if (!S_ISREG(status.st_mode)) {
    Refuse(name, status, absl::InvalidArgumentError("not a regular file"));
    return;
  }
  const int fd = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    if (errno != ENOENT) Refuse(name, status, service::ErrnoStatus(errno, "cannot open it"));
    return;
  }
  struct stat opened {};
  if (fstat(fd, &opened) != 0 || opened.st_dev != status.st_dev || opened.st_ino != status.st_ino) {
    close(fd);  // replaced in between: the next scan sees which
    return;
  }
  auto segment = std::make_unique<SegmentFile>(name, fd, status.st_dev, status.st_ino);
  const absl::Status started = segment->Start(first_scan_ ? RingStart::kNewest : RingStart::kOldest);
  if (!started.ok()) {
    Refuse(name, status, started);
    return;
  }
  refused_.erase(name);
  const wire::SegmentHeader& header = segment->header();
  service::LogInfo("segment ", Shown(name), ": process ", header.header.writer.pid, " (",
                   service::Printable(header.program), ")", header.job[0] == '\0' ? "" : " of job ",
                   service::Printable(header.job));
  segments_[name] = std::move(segment);
}

void Scanner::Refuse(const std::string& name, const struct stat& file, const absl::Status& why) {
  Refusal& refusal = refused_[name];
  refusal.seen = true;
  refusal.owner_uid = file.st_uid;
  if (refusal.device == file.st_dev && refusal.inode == file.st_ino) return;
  refusal.device = file.st_dev;
  refusal.inode = file.st_ino;
  refusal.why = service::Printable(std::string(why.message()));
  service::LogWarning("segment ", Shown(name), " is left out: ", why.message());
}

// A writer fills its segment under a hidden name first; one that died meanwhile leaves it behind.
void Scanner::SweepHidden(int directory, const std::string& name) const {
  struct stat status {};
  if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) return;
  const int64_t age_ns = scanned_unix_ns_ - (static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 +
                                             status.st_mtim.tv_nsec);
  if (age_ns < kHiddenKeptNs) return;
  const int fd = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return;
  if (!IsLocked(fd)) unlinkat(directory, name.c_str(), 0);
  close(fd);
}

// A segment without a name is still its process's, who writes on: somebody has removed the file, or the whole
// directory. It goes when the process does, as others do.
void Scanner::KeepUnlinked() {
  for (const auto& [name, segment] : segments_) {
    if (seen_.contains(name) || !segment->alive() || !unlinked_.insert(name).second) continue;
    service::LogWarning("segment ", Shown(name), " was removed from ", options_.run_dir, " while process ",
                        segment->pid(),
                        " writes it: it is watched until the process ends, but an agent that "
                        "starts after this one cannot find it");
  }
  std::erase_if(unlinked_,
                [&](const auto& name) { return seen_.contains(name) || !segments_.contains(name); });
}

void Scanner::UpdateAll(int directory) {
  const std::optional<ClockRelation> tsc = tsc_.Relation();
  figures_.segments_suspect = 0;
  for (auto at = segments_.begin(); at != segments_.end();) {
    SegmentFile& segment = *at->second;
    const uint64_t read_before = segment.records_read();
    const uint64_t lost_before = segment.records_lost();
    const bool was_alive = segment.alive();
    segment.Update(proc_, tsc, scanned_monotonic_ns_, &exits_);
    figures_.records_read += segment.records_read() - read_before;
    figures_.records_lost += segment.records_lost() - lost_before;
    if (was_alive && !segment.alive()) {
      service::LogInfo("segment ", Shown(segment.name()), ": process ", segment.pid(),
                       segment.ended() ? " has left in order" : " is gone without having said so");
    }
    if (!segment.suspicion().empty()) {
      ++figures_.segments_suspect;
      if (told_.insert(segment.name()).second) {
        service::LogWarning("segment ", Shown(segment.name()),
                            " is no longer believed: ", segment.suspicion(), "; only the health of process ",
                            segment.pid(), " is reported from here on");
      }
    }
    if (!MayGo(segment)) {
      ++at;
    } else if (unlinkat(directory, segment.name().c_str(), 0) == 0 || errno == ENOENT) {
      segment.StopWatching(&exits_);
      at = segments_.erase(at);
    } else {
      if (told_.insert(segment.name()).second) {
        service::LogWarning("segment ", Shown(segment.name()),
                            " of a process that is no more cannot be removed (",
                            service::ErrnoStatus(errno, "unlink").message(), "): remove it by hand");
      }
      ++at;
    }
  }
}

// Whoever may write to the directory can put a copy of somebody's segment there. The process itself holds the
// lock of its own: while one is locked, others that name that process are copies, and say nothing of its end.
void Scanner::FindStrays() {
  strays_.clear();
  const auto key = [](const SegmentFile& segment) {
    const wire::ProcessIdentity& writer = segment.header().header.writer;
    return std::tuple(BootIdText(writer.boot_id), segment.pid(), writer.start_time_ticks);
  };
  std::map<std::tuple<std::string, uint32_t, uint64_t>, const SegmentFile*> held;
  for (const auto& [name, segment] : segments_) {
    if (segment->alive()) held.try_emplace(key(*segment), segment.get());
  }
  for (const auto& [name, segment] : segments_) {
    const auto other = held.find(key(*segment));
    if (other == held.end() || other->second == segment.get()) continue;
    strays_.insert(name);
    if (told_.insert(name).second) {
      service::LogWarning("segment ", Shown(name), " of uid ", segment->owner_uid(), " is left out: process ",
                          segment->pid(), ", which it names, lives and holds ", Shown(other->second->name()));
    }
  }
}

bool Scanner::MayGo(const SegmentFile& segment) const {
  if (segment.alive()) return false;
  if (segment.ended()) return segment.reported_after_end;
  const int64_t dead_ns = scanned_monotonic_ns_ - segment.health().state_since_ns;
  return static_cast<double>(dead_ns) >= options_.keep_dead_s * 1e9;
}

std::vector<SegmentFile*> Scanner::Processes() const {
  std::vector<SegmentFile*> processes;
  processes.reserve(segments_.size());
  for (const auto& [name, segment] : segments_) {
    if (!strays_.contains(name)) processes.push_back(segment.get());
  }
  return processes;
}

}  // namespace c4::agent
