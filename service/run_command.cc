#include "service/run_command.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "service/file_handle.h"
#include "service/text.h"

namespace c4::service {
namespace {

constexpr int kLookMs = 100;
constexpr off_t kQuoted = 300;  // bytes of standard error

// A file in memory, so that neither side ever waits for the other to read or write.
int MemoryFile(const std::string& content) {
  const int fd = memfd_create("c4-command", MFD_CLOEXEC);
  if (fd < 0) return fd;
  for (size_t done = 0; done < content.size();) {
    const ssize_t n = write(fd, content.data() + done, content.size() - done);
    if (n <= 0) {
      close(fd);
      return -1;
    }
    done += static_cast<size_t>(n);
  }
  lseek(fd, 0, SEEK_SET);
  return fd;
}

off_t SizeOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_size : 0;
}

std::string ContentOf(int fd) {
  std::string text(static_cast<size_t>(SizeOf(fd)), '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

std::string EndOf(int fd) {
  const off_t size = SizeOf(fd);
  std::string text(static_cast<size_t>(std::min(size, kQuoted)), '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return ToUtf8(std::string(absl::StripSuffix(text, "\n")));
}

// Its errno, or 0. `output`: -1: nowhere.
int Spawn(const std::vector<std::string>& words, int input, int output, int errors, pid_t* pid) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  if (output < 0) {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  }
  posix_spawn_file_actions_adddup2(&files, errors, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(pid, words.front().c_str(), &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& words, const std::string& input,
                        absl::Duration timeout, const std::function<bool()>& stop, std::string* output) {
  if (words.empty()) return absl::InvalidArgumentError("there is no command to run");
  const std::string& program = words.front();
  const FileHandle in(MemoryFile(input));
  const FileHandle errors(MemoryFile(""));
  const FileHandle out(output == nullptr ? -1 : MemoryFile(""));
  if (in.get() < 0 || errors.get() < 0 || (output != nullptr && out.get() < 0))
    return ErrnoStatus(errno, "cannot make a file in memory for a command");
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  pid_t pid = -1;
  if (const int error = Spawn(words, in.get(), out.get(), errors.get(), &pid); error != 0) {
    return ErrnoStatus(error, Concat("cannot start ", program));
  }
  const FileHandle process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  absl::Status killed;
  for (;;) {
    pollfd ended = {.fd = process.get(), .events = POLLIN, .revents = 0};
    // Without a descriptor (an old kernel) it only sleeps.
    (void)poll(&ended, 1, kLookMs);
    int how = 0;
    const pid_t done = waitpid(pid, &how, killed.ok() ? WNOHANG : 0);
    if (done < 0 && errno == EINTR) continue;
    if (done == pid || done < 0) {
      if (!killed.ok()) return killed;
      if (done < 0) return ErrnoStatus(errno, Concat("cannot wait for ", program));
      if (output != nullptr) *output = ContentOf(out.get()).substr(0, kMaxCommandOutput);
      if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return absl::OkStatus();
      const std::string end = WIFEXITED(how) ? absl::StrFormat("ended with %d", WEXITSTATUS(how))
                                             : absl::StrFormat("was ended by signal %d", WTERMSIG(how));
      const std::string said = EndOf(errors.get());
      return absl::UnavailableError(Concat(program, " ", end, said.empty() ? "" : ": ", said));
    }
    if (stop && stop()) {
      killed = absl::CancelledError(Concat(program, " was killed: the master is about to end"));
    } else if (std::chrono::steady_clock::now() >= deadline) {
      killed =
          absl::DeadlineExceededError(Concat(program, " was killed after ", absl::FormatDuration(timeout),
                                             "; make it quicker or its time longer"));
    }
    for (const int fd : {out.get(), errors.get()}) {
      if (fd >= 0 && static_cast<size_t>(SizeOf(fd)) > kMaxCommandOutput) {
        killed = absl::ResourceExhaustedError(Concat(program, " was killed: it wrote more than 1 MiB"));
      }
    }
    if (!killed.ok()) kill(-pid, SIGKILL);
  }
}

}  // namespace c4::service
