#include "cli/launch/job_dir.h"

#include <cerrno>
#include <chrono>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "run-";
constexpr char kLockName[] = "launcher.lock";
// A directory without a lock file may be one that its launcher is just making.
constexpr std::chrono::seconds kYoung{60};

// Open and locked, or -1 with errno set.
int TryLock(const fs::path& path, int flags) {
  const int fd = open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

void RemoveAbandoned(const fs::path& base) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    const fs::path& path = entry.path();
    std::error_code ignored;
    if (!path.filename().string().starts_with(kPrefix) || !fs::is_directory(entry.symlink_status(ignored))) {
      continue;
    }
    const fs::path lock = path / kLockName;
    if (!fs::exists(lock, ignored)) {
      const auto written = fs::last_write_time(path, ignored);
      if (!ignored && fs::file_time_type::clock::now() - written >= kYoung) fs::remove_all(path, ignored);
      continue;
    }
    const int fd = TryLock(lock, 0);
    if (fd < 0) continue;  // its launcher lives, or it is another user's
    fs::remove_all(path, ignored);
    close(fd);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobDirectory>> JobDirectory::Create(const std::string& base) {
  if (absl::Status made = service::EnsureSharedDirectory(base); !made.ok()) return made;
  RemoveAbandoned(base);
  std::string path = absl::StrCat(base, "/", kPrefix, getpid(), "-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return service::ErrnoStatus(errno, "cannot make a directory in " + base);
  }
  const int lock_fd = TryLock(fs::path(path) / kLockName, O_CREAT);
  if (lock_fd < 0) {
    const int lock_error = errno;
    std::error_code ignored;
    fs::remove_all(path, ignored);
    return service::ErrnoStatus(lock_error, "cannot lock " + path + "/" + kLockName);
  }
  return std::unique_ptr<JobDirectory>(new JobDirectory(std::move(path), lock_fd));
}

JobDirectory::~JobDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_fd_);
}

std::string JobDirectory::name() const {
  return fs::path(path_).filename().string();
}

std::string LastLines(const std::string& path, int lines, const std::string& indent, int64_t start) {
  std::ifstream file(path);
  file.seekg(start);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line);
    if (last.size() > static_cast<size_t>(lines)) last.pop_front();
  }
  std::string result;
  for (const std::string& line : last) absl::StrAppend(&result, result.empty() ? "" : "\n", indent, line);
  return result;
}

}  // namespace c4::cli
