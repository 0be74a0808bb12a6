#include "c4a/health/kernel_log_source.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "c4a/health/kernel_log.h"
#include "service/status.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr size_t kMostRecord = 8192;  // of /dev/kmsg
constexpr size_t kMostEventsAtOnce = 1000;

}  // namespace

KernelLogSource::KernelLogSource(RootFiles files, std::string path)
    : files_(std::move(files)), path_(std::move(path)), names_(&files_) {}

KernelLogSource::~KernelLogSource() {
  if (fd_ >= 0) close(fd_);
}

absl::Status KernelLogSource::Open() {
  files_.Tell(path_);
  const std::string full = files_.FullPath(path_);
  struct stat found {};
  if (stat(full.c_str(), &found) != 0) return absl::NotFoundError(Concat("there is no ", full));
  is_device_ = S_ISCHR(found.st_mode);
  fd_ = open(full.c_str(), O_RDONLY | O_CLOEXEC | (is_device_ ? O_NONBLOCK : 0));
  if (fd_ < 0) {
    return absl::NotFoundError(
        Concat(full, " cannot be read (", service::ErrnoStatus(errno, "open").message(),
               "): give the agent CAP_SYSLOG, or name a file that it may read (--kernel-log)"));
  }
  offset_ = lseek(fd_, 0, SEEK_END);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<HealthEvent>> KernelLogSource::Read(int64_t now_ns) {
  std::vector<HealthEvent> events;
  if (fd_ < 0) {
    if (absl::Status opened = Open(); !opened.ok()) return opened;
    last_read_ns_ = now_ns;
    return events;
  }
  files_.Tell(path_);
  const absl::Status status = is_device_ ? ReadRecords(now_ns, &events) : ReadText(now_ns, &events);
  last_read_ns_ = now_ns;
  if (!status.ok()) return status;
  return events;
}

void KernelLogSource::TakeLine(std::string_view line, int64_t now_ns, std::vector<HealthEvent>* events) {
  const std::optional<KernelLine> split = SplitKernelLine(line);
  if (!split.has_value() || events->size() >= kMostEventsAtOnce) return;
  std::optional<HealthEvent> event = ParseKernelMessage(split->message);
  if (!event.has_value()) return;
  // The kernel stamps by a clock that goes nearly as ours; the looks bound how far it may be off.
  event->at_ns = split->stamp_us < 0 ? now_ns : std::clamp(split->stamp_us * 1000, last_read_ns_, now_ns);
  if (!PciAddress(event->device).empty()) event->device = names_.NameOf(event->device, now_ns);
  events->push_back(*std::move(event));
}

absl::Status KernelLogSource::ReadRecords(int64_t now_ns, std::vector<HealthEvent>* events) {
  char record[kMostRecord];
  for (size_t total = 0; total < kMostBytesAtOnce;) {
    const ssize_t bytes = read(fd_, record, sizeof record);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno == EPIPE) {
      total += 1;  // records were overwritten before they were read
      continue;
    }
    if (bytes < 0 && errno != EAGAIN) return service::ErrnoStatus(errno, Concat("read ", path_));
    if (bytes <= 0) break;
    total += static_cast<size_t>(bytes);
    const std::string_view text(record, static_cast<size_t>(bytes));
    TakeLine(text.substr(0, text.find('\n')), now_ns, events);  // what follows is about the device
  }
  return absl::OkStatus();
}

absl::Status KernelLogSource::ReadText(int64_t now_ns, std::vector<HealthEvent>* events) {
  struct stat opened {};
  struct stat named {};
  if (fstat(fd_, &opened) != 0) return service::ErrnoStatus(errno, Concat("stat ", path_));
  // Cut short, or rotated: the new file from its beginning.
  const bool other = stat(files_.FullPath(path_).c_str(), &named) == 0 &&
                     (named.st_ino != opened.st_ino || named.st_dev != opened.st_dev);
  if (other && opened.st_size <= offset_) {
    const int fd = open(files_.FullPath(path_).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return absl::OkStatus();
    close(std::exchange(fd_, fd));
    opened = named;
    offset_ = 0;
    rest_.clear();
  }
  if (opened.st_size < offset_) offset_ = 0;
  const auto most = static_cast<int64_t>(kMostBytesAtOnce);
  if (opened.st_size - offset_ > most) {
    offset_ = opened.st_size - most;
    rest_.clear();
  }
  std::string text = std::move(rest_);
  rest_.clear();
  char buffer[4096];
  for (;;) {
    const ssize_t bytes = pread(fd_, buffer, sizeof buffer, offset_);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return service::ErrnoStatus(errno, Concat("read ", path_));
    if (bytes == 0 || text.size() > kMostBytesAtOnce + kMostRecord) break;
    offset_ += bytes;
    text.append(buffer, static_cast<size_t>(bytes));
  }
  std::string_view left = text;
  for (size_t end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
    TakeLine(left.substr(0, end), now_ns, events);
    left.remove_prefix(end + 1);
  }
  rest_ = left.substr(0, kMostRecord);
  return absl::OkStatus();
}

}  // namespace c4::agent
