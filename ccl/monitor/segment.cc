#include "ccl/monitor/segment.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ccl/base/kernel.h"
#include "ccl/monitor/segment_guard.h"

namespace c4 {
namespace {

size_t RingStride(const SegmentGeometry& geometry) {
  return sizeof(wire::RingHeader) + size_t{geometry.ring_records} * sizeof(wire::Record);
}

size_t SegmentBytes(const SegmentGeometry& geometry) {
  return sizeof(wire::SegmentHeader) + size_t{geometry.communicators} * sizeof(wire::CommunicatorSlot) +
         size_t{geometry.queue_pairs} * sizeof(wire::QueuePairSlot) +
         size_t{geometry.rings} * RingStride(geometry);
}

// Sticky and writable by all, as /tmp is: ranks of several users share the directory with one agent.
Result MakeDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0777) == 0) {
    chmod(directory.c_str(), 01777);
    return Ok();
  }
  if (errno == EEXIST) return Ok();
  return Fail(ncclSystemError, "cannot make %s: %s", directory.c_str(), ErrnoText(errno).c_str());
}

constexpr int64_t kAbandonedAfterS = 24 * 3600;

bool HasLivingWriter(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  return fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// A sparse file on a tmpfs that fills up would end the process by SIGBUS at some later count.
int TakeRoom(int fd, size_t bytes) {
  for (;;) {
    const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes));
    if (error != EINTR) return error;
  }
}

}  // namespace

void SweepSegments(const std::string& directory, int64_t age_s) {
  DIR* entries = opendir(directory.c_str());
  if (entries == nullptr) return;
  // Files of this pid stay unopened: closing one would give up a lock that another copy of the library in
  // this process holds on it.
  const std::string own = std::to_string(getpid()) + "-";
  while (const dirent* entry = readdir(entries)) {  // NOLINT(concurrency-mt-unsafe): a stream of our own
    const std::string name = entry->d_name;
    if (!name.ends_with(wire::kSegmentSuffix) || name.starts_with(own)) continue;
    std::string path = directory;
    path.append("/").append(name);
    struct stat status;
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    const bool abandoned = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                           time(nullptr) - status.st_mtime >= age_s && !HasLivingWriter(fd);
    close(fd);
    if (abandoned) unlink(path.c_str());
  }
  closedir(entries);
}

void CopyText(char* to, size_t size, const std::string& from) {
  memset(to, 0, size);
  memcpy(to, from.data(), std::min(from.size(), size - 1));
}

Segment::~Segment() {
  if (base_ != nullptr) {
    UnguardSegment(base_);
    munmap(base_, bytes_);
  }
  if (fd_ >= 0) close(fd_);
}

Result Segment::Create(const std::string& directory, const SegmentGeometry& geometry, const ClockBase& clock,
                       const JobIdentity& job) {
  C4_RETURN_IF_ERROR(MakeDirectory(directory));
  SweepSegments(directory, kAbandonedAfterS);
  uint64_t salt = 0;
  if (!FillRandom(&salt, sizeof salt)) salt = NowTicks();
  char name[96];
  snprintf(name, sizeof name, "%d-%016" PRIx64 "%s", static_cast<int>(getpid()), salt, wire::kSegmentSuffix);
  const std::string path = directory + "/" + name;
  // The agent takes only files that are whole: it is filled under a name that it does not look at.
  const std::string hidden = directory + "/." + name;
  const int fd = open(hidden.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return Fail(ncclSystemError, "cannot make %s: %s", hidden.c_str(), ErrnoText(errno).c_str());
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  const size_t bytes = SegmentBytes(geometry);
  void* base = MAP_FAILED;
  int error = fcntl(fd, F_SETLK, &lock) == 0 ? TakeRoom(fd, bytes) : errno;
  if (error == 0) {
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = errno;
  }
  if (base == MAP_FAILED) {
    unlink(hidden.c_str());
    close(fd);
    return Fail(ncclSystemError, "cannot take %zu bytes for %s: %s", bytes, hidden.c_str(),
                ErrnoText(error).c_str());
  }
  base_ = base;
  bytes_ = bytes;
  fd_ = fd;
  file_name_ = name;
  Fill(geometry, clock, job);
  memcpy(&layout_, base_, sizeof layout_);
  GuardSegment(base_, bytes_, &layout_);
  if (rename(hidden.c_str(), path.c_str()) != 0) {
    error = errno;
    unlink(hidden.c_str());
    file_name_.clear();
    return Fail(ncclSystemError, "cannot rename %s: %s", hidden.c_str(), ErrnoText(error).c_str());
  }
  return Ok();
}

Result Segment::CreatePrivate(const SegmentGeometry& geometry, const ClockBase& clock,
                              const JobIdentity& job) {
  const size_t bytes = SegmentBytes(geometry);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Fail(ncclSystemError, "cannot map %zu bytes: %s", bytes, ErrnoText(errno).c_str());
  }
  base_ = base;
  bytes_ = bytes;
  Fill(geometry, clock, job);
  return Ok();
}

void Segment::Fill(const SegmentGeometry& geometry, const ClockBase& clock, const JobIdentity& job) {
  wire::SegmentHeader& h = header();
  h.header.magic = wire::kSegmentMagic;
  h.header.major = wire::kSegmentMajor;
  h.header.minor = wire::kSegmentMinor;
  h.header.endian = wire::kEndianMark;
  h.header.header_bytes = sizeof(wire::SegmentHeader);
  h.header.record_bytes = sizeof(wire::Record);
  h.header.total_bytes = bytes_;
  h.header.writer = CurrentProcess();
  h.clock_kind = clock.kind;
  h.ticks_per_second = clock.ticks_per_second;
  h.base_ticks = clock.ticks;
  h.base_monotonic_ns = clock.monotonic_ns;
  h.pid_namespace = CurrentPidNamespace();
  h.job_source = job.source;
  uint64_t offset = sizeof(wire::SegmentHeader);
  h.communicators = {offset, geometry.communicators, sizeof(wire::CommunicatorSlot)};
  offset += uint64_t{geometry.communicators} * sizeof(wire::CommunicatorSlot);
  h.queue_pairs = {offset, geometry.queue_pairs, sizeof(wire::QueuePairSlot)};
  offset += uint64_t{geometry.queue_pairs} * sizeof(wire::QueuePairSlot);
  h.rings = {offset, geometry.rings, static_cast<uint32_t>(RingStride(geometry))};
  h.ring_capacity = geometry.ring_records;
  h.rank_label = job.rank;
  h.local_rank_label = job.local_rank;
  h.world_label = job.world;
  h.incarnation = job.incarnation;
  CopyText(h.host, sizeof h.host, HostName());
  CopyText(h.job, sizeof h.job, job.name);
  CopyText(h.program, sizeof h.program, ProgramName());
}

wire::CommunicatorSlot& Segment::communicator(uint32_t i) {
  return reinterpret_cast<wire::CommunicatorSlot*>(static_cast<char*>(base_) +
                                                   header().communicators.offset)[i];
}

wire::QueuePairSlot& Segment::queue_pair(uint32_t i) {
  return reinterpret_cast<wire::QueuePairSlot*>(static_cast<char*>(base_) + header().queue_pairs.offset)[i];
}

wire::RingHeader& Segment::ring(uint32_t i) {
  const wire::TableRef& rings = header().rings;
  return *reinterpret_cast<wire::RingHeader*>(static_cast<char*>(base_) + rings.offset +
                                              size_t{i} * rings.stride_bytes);
}

wire::Record* Segment::ring_records(uint32_t i) {
  return reinterpret_cast<wire::Record*>(&ring(i) + 1);
}

void Segment::BecomePrivate() {
  if (base_ == nullptr || fd_ < 0) return;
  // Zeroed memory at the same place: recorders that the child inherited write into it, and nobody reads.
  // The layout is put back so that their own look-ups stay within it.
  wire::SegmentHeader copy;
  memcpy(&copy, base_, sizeof copy);
  if (mmap(base_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
           0) == MAP_FAILED) {
    return;
  }
  memcpy(base_, &copy, sizeof copy);
}

}  // namespace c4
