#include "service/audit.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "service/file_handle.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::service {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxDetailBytes = 1024;

std::string Sha256(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

std::string Chained(const std::string& before, const Json& line) {
  return Sha256(Concat(before, "\n", line.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

struct End {
  uint64_t lines = 0;
  std::string chain;  // of the last line
};

absl::StatusOr<End> ReadToEnd(const std::string& path) {
  std::ifstream file(path);
  if (!file) return ErrnoStatus(errno, Concat("cannot read the audit ", path));
  End end;
  for (std::string text; std::getline(file, text);) {
    const auto broken = [&] {
      return absl::DataLossError(Concat("line ", end.lines + 1, " of the audit ", path,
                                        " does not follow from the one before: lines were changed or lost"));
    };
    Json line = Json::parse(text, nullptr, false);
    if (!line.is_object() || !line.contains("chain") || !line["chain"].is_string()) return broken();
    const std::string chain = line["chain"].get<std::string>();
    line.erase("chain");
    if (chain != Chained(end.chain, line)) return broken();
    end.chain = chain;
    ++end.lines;
  }
  return end;
}

// A daemon that was killed while it wrote leaves a line without its end.
absl::Status CutHalfALine(int fd, off_t size, const std::string& path) {
  off_t end = size;
  for (char last = 0; end > 0; --end) {
    if (pread(fd, &last, 1, end - 1) != 1) return ErrnoStatus(errno, Concat("cannot read the audit ", path));
    if (last == '\n') break;
  }
  if (end < size && ftruncate(fd, end) != 0)
    return ErrnoStatus(errno, Concat("cannot mend the audit ", path));
  return absl::OkStatus();
}

}  // namespace

struct AuditLog::State {
  State(const std::string& at, int fd) : path(at), file(fd) {}
  const std::string path;
  const FileHandle file;
  absl::Mutex mutex;
  End end ABSL_GUARDED_BY(mutex);
};

AuditLog::AuditLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
AuditLog::~AuditLog() = default;

const std::string& AuditLog::path() const {
  return state_->path;
}

absl::StatusOr<std::shared_ptr<AuditLog>> AuditLog::Open(const std::string& path) {
  const int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  auto state = std::make_unique<State>(path, open(path.c_str(), flags, 0600));
  const int fd = state->file.get();
  if (fd < 0) return ErrnoStatus(errno, Concat("cannot write the audit ", path));
  struct stat status {};
  if (fstat(fd, &status) != 0) return ErrnoStatus(errno, Concat("cannot stat ", path));
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(Concat("the audit ", path, " has to be a file of uid ", geteuid(),
                                              " that nobody else can reach; move it away or chmod 600 it"));
  }
  C4_RETURN_IF_NOT_OK(CutHalfALine(fd, status.st_size, path));
  absl::StatusOr<End> end = ReadToEnd(path);
  if (absl::IsDataLoss(end.status())) {
    // Kept as it is, for whoever wants to know; the daemon goes on with a new file.
    const std::string aside = Concat(path, ".broken-", absl::ToUnixSeconds(absl::Now()));
    LogError(end.status().message(), "; it is kept as ", aside, " and a new one begins");
    if (rename(path.c_str(), aside.c_str()) != 0) {
      return ErrnoStatus(errno, Concat("cannot rename ", path, " to ", aside));
    }
    return Open(path);
  }
  if (!end.ok()) return end.status();
  {
    const absl::MutexLock lock(&state->mutex);
    state->end = *std::move(end);
  }
  return std::shared_ptr<AuditLog>(new AuditLog(std::move(state)));
}

absl::Status AuditLog::Append(const AuditEntry& entry, int64_t unix_ns) {
  const absl::MutexLock lock(&state_->mutex);
  Json line = {
      {"n", state_->end.lines + 1},
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone())},
      {"who", ToUtf8(entry.who)},
      {"call", entry.call},
      {"detail", ToUtf8(entry.detail.substr(0, kMaxDetailBytes))},
      {"from", entry.from},
      {"allowed", entry.allowed},
      {"why", ToUtf8(entry.why)}};
  const std::string chain = Chained(state_->end.chain, line);
  line["chain"] = chain;
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const off_t before = lseek(state_->file.get(), 0, SEEK_END);
  const ssize_t written = write(state_->file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || fdatasync(state_->file.get()) != 0) {
    const int error = written < 0 ? errno : ENOSPC;
    // Half a line would break the chain for good.
    (void)!ftruncate(state_->file.get(), before);
    return ErrnoStatus(error, Concat("the action is refused: its line cannot be written to ", state_->path));
  }
  state_->end.chain = chain;
  ++state_->end.lines;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> VerifyAudit(const std::string& path) {
  const absl::StatusOr<End> end = ReadToEnd(path);
  if (!end.ok()) return end.status();
  return end->lines;
}

}  // namespace c4::service
