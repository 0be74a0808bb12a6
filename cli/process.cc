#include "cli/process.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildPlan {
  const char* path;
  char* const* arguments;
  char* const* environment;
  int death_signal;
  int stdin_fd, stdout_fd, stderr_fd, error_fd;
  pid_t parent;
  int ns_fd = -1;         // -1: the parent's
  int processes_fd = -1;  // -1: the parent's control group
  const char* host_name = nullptr;
  size_t host_name_size = 0;
};

// Where between fork and exec it failed.
enum class Step : int { kPlace, kExecute };
struct ChildError {
  Step step;
  int error;
};

bool EnterPlace(const ChildPlan& plan) {
  if (plan.processes_fd >= 0 && write(plan.processes_fd, "0", 1) != 1) return false;
  if (plan.ns_fd >= 0 && setns(plan.ns_fd, CLONE_NEWNET) != 0) return false;
  if (plan.host_name_size == 0) return true;
  return unshare(CLONE_NEWUTS) == 0 && sethostname(plan.host_name, plan.host_name_size) == 0;
}

// Files that have to be open before the fork, closed with it.
class OpenFile {
 public:
  absl::Status Open(const std::string& path, int flags) {
    if (path.empty()) return absl::OkStatus();
    fd_ = open(path.c_str(), flags | O_CLOEXEC);
    return fd_ >= 0 ? absl::OkStatus() : service::ErrnoStatus(errno, "cannot open " + path);
  }
  OpenFile() = default;
  ~OpenFile() {
    if (fd_ >= 0) close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeProgram(const ChildPlan& plan) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, plan.death_signal);
  if (getppid() != plan.parent) _exit(kill(getpid(), SIGKILL));  // the parent ended before prctl
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  // execve would hand on what is ignored: SIGPIPE by us, SIGINT and SIGQUIT in the background of a script.
  for (const int ignored : {SIGPIPE, SIGINT, SIGQUIT, SIGTERM}) signal(ignored, SIG_DFL);
  ChildError fault = {Step::kPlace, 0};
  if (!EnterPlace(plan)) {
    fault.error = errno;
    [[maybe_unused]] const ssize_t told = write(plan.error_fd, &fault, sizeof fault);
    _exit(127);
  }
  int failed = dup2(plan.stdin_fd, STDIN_FILENO);
  if (failed >= 0 && plan.stdout_fd >= 0) failed = dup2(plan.stdout_fd, STDOUT_FILENO);
  if (failed >= 0 && plan.stderr_fd >= 0) failed = dup2(plan.stderr_fd, STDERR_FILENO);
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (failed >= 0) execve(plan.path, plan.arguments, plan.environment);
  fault = {Step::kExecute, errno};
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &fault, sizeof fault);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::vector<std::string>& environment) {
  if (name.empty()) return absl::InvalidArgumentError("the program's name is empty");
  const auto check = [](const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path);
  };
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (!fs::exists(name, ignored))
      return absl::NotFoundError(absl::StrCat("there is no program '", name, "'"));
    if (!check(name)) {
      return absl::PermissionDeniedError(absl::StrCat("'", name, "' is not an executable file"));
    }
    return name;
  }
  const std::string path = EnvironmentValue(environment, "PATH").value_or("/usr/bin:/bin");
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path, ':'))) {
    const std::string candidate = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (check(candidate)) return candidate;
  }
  return absl::NotFoundError(absl::StrCat("there is no program '", name, "' in PATH"));
}

absl::StatusOr<pid_t> Spawn(const SpawnRequest& request) {
  // Here and not in the child, where only async-signal-safe calls are allowed.
  absl::StatusOr<std::string> path = FindProgram(request.program, request.environment);
  if (!path.ok()) return path.status();
  std::vector<std::string> words = request.arguments;
  words.insert(words.begin(), request.program);
  const std::vector<char*> arguments = Pointers(words);
  const std::vector<char*> environment = Pointers(request.environment);

  OpenFile ns, processes;
  const std::string ns_path = request.place.ns.empty() ? "" : "/run/netns/" + request.place.ns;
  C4_RETURN_IF_NOT_OK(ns.Open(ns_path, O_RDONLY));
  C4_RETURN_IF_NOT_OK(processes.Open(request.place.processes_file, O_WRONLY));
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return service::ErrnoStatus(errno, "cannot make a pipe");
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const ChildPlan plan = {path->c_str(),
                          arguments.data(),
                          environment.data(),
                          request.death_signal,
                          null_fd,
                          request.stdout_fd,
                          request.stderr_fd,
                          error_pipe[1],
                          getpid(),
                          ns.fd(),
                          processes.fd(),
                          request.place.host_name.c_str(),
                          request.place.host_name.size()};
  const pid_t pid = null_fd >= 0 ? fork() : -1;
  const int fork_error = errno;
  if (pid == 0) BecomeProgram(plan);
  close(error_pipe[1]);
  if (null_fd >= 0) close(null_fd);
  if (pid < 0) {
    close(error_pipe[0]);
    return service::ErrnoStatus(fork_error, absl::StrCat("cannot start '", request.program, "'"));
  }
  setpgid(pid, pid);  // both sides do it, so that it holds as soon as either has run
  ChildError failed = {Step::kExecute, 0};
  ssize_t count;
  do {
    count = read(error_pipe[0], &failed, sizeof failed);
  } while (count < 0 && errno == EINTR);
  close(error_pipe[0]);
  if (count == sizeof failed) {
    waitpid(pid, nullptr, 0);
    if (failed.step == Step::kPlace) {
      return service::ErrnoStatus(failed.error, absl::StrCat("cannot start '", *path, "' in host ",
                                                             request.place.host_name, " of the fabric"));
    }
    const std::string text = absl::StrCat("cannot execute '", *path, "'");
    if (failed.error == ENOEXEC) {
      return absl::PermissionDeniedError(
          absl::StrCat(text, ": it is neither a program nor a script with #!"));
    }
    return service::ErrnoStatus(failed.error, text);
  }
  return pid;
}

absl::StatusOr<int> WaitForEnd(pid_t pid, absl::Duration limit) {
  // A file that can be read once the process has ended.
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return service::ErrnoStatus(errno, absl::StrCat("cannot watch process ", pid));
  const absl::Time end = absl::Now() + limit;
  pollfd entry = {fd, POLLIN, 0};
  int ready;
  do {
    const int64_t left_ms = absl::ToInt64Milliseconds(end - absl::Now());
    ready = poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left_ms, 0, INT_MAX)));
  } while (ready < 0 && errno == EINTR);
  close(fd);
  if (ready == 0) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready != 0) return status;
  return absl::DeadlineExceededError(absl::StrCat("no end after ", absl::FormatDuration(limit)));
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was ended by signal ", signal, " (", SignalName(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::optional<ProcessStat> ParseProcessStat(std::string_view text) {
  // The command, in parentheses, may hold anything: what counts starts after the last ')'.
  const size_t end = text.rfind(')');
  if (end == std::string_view::npos || end + 2 >= text.size()) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(text.data() + end + 2, text.size() - end - 2), ' ');
  constexpr size_t kState = 0, kParent = 1, kGroup = 2, kStartTime = 19;  // fields 3, 4, 5 and 22
  if (fields.size() <= kStartTime || fields[kState].size() != 1) return std::nullopt;
  ProcessStat stat;
  stat.state = fields[kState][0];
  const auto number = [&fields](size_t index, auto* value) {
    const std::string& field = fields[index];
    return std::from_chars(field.data(), field.data() + field.size(), *value).ec == std::errc();
  };
  if (!number(kParent, &stat.parent) || !number(kGroup, &stat.group) ||
      !number(kStartTime, &stat.start_time_ticks)) {
    return std::nullopt;
  }
  return stat;
}

std::optional<ProcessStat> ReadProcessStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text,
               '\0');  // all of it; a process that ends meanwhile is an error, which iterators throw
  return ParseProcessStat(text);
}

bool IsStopped(pid_t pid) {
  const std::optional<ProcessStat> stat = ReadProcessStat(pid);
  return stat.has_value() && (stat->state == 'T' || stat->state == 't');
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) continue;
    const std::optional<ProcessStat> stat = ReadProcessStat(pid);
    if (stat.has_value() && stat->parent == parent && stat->state != 'Z') children.push_back(pid);
  }
  return children;
}

std::vector<std::string> OwnEnvironment() {
  std::vector<std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) result.emplace_back(*entry);
  return result;
}

std::optional<std::string> EnvironmentValue(const std::vector<std::string>& environment,
                                            std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.compare(0, name.size(), name) == 0) {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::string> OwnFolder() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  return path.parent_path().string();
}

}  // namespace c4::cli
