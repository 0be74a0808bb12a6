#include "cli/base/child.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/base/plain_text.h"

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
  Status Open(const std::string& path, int flags) {
    if (path.empty()) return Status();
    fd_ = open(path.c_str(), flags | O_CLOEXEC);
    return fd_ >= 0 ? Status() : ErrnoStatus(errno, "cannot open " + path);
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

// All files but the three that a program starts with. The call is younger (Linux 5.9, glibc 2.34) than
// systems that this runs on; what is open there beyond the first thousands has been opened to be closed by
// itself.
void CloseAtExecute() {
  constexpr int kMostFiles = 4096;
  if (syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = 3; fd < kMostFiles; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

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
  CloseAtExecute();
  if (failed >= 0) execve(plan.path, plan.arguments, plan.environment);
  fault = {Step::kExecute, errno};
  [[maybe_unused]] const ssize_t written = write(plan.error_fd, &fault, sizeof fault);
  _exit(127);
}

}  // namespace

StatusOr<std::string> ProgramPath(const std::string& name, const std::vector<std::string>& environment) {
  if (name.empty()) return InvalidArgumentError("the program's name is empty");
  const auto check = [](const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path);
  };
  std::error_code ignored;
  if (name.find('/') != std::string::npos) {
    if (!fs::exists(name, ignored)) return NotFoundError(Cat("there is no program '", name, "'"));
    if (!check(name)) {
      return PermissionDeniedError(Cat("'", name, "' is not an executable file"));
    }
    return name;
  }
  const std::string path = EnvironmentValue(environment, "PATH").value_or("/usr/bin:/bin");
  for (const std::string& folder : Split(path, ":")) {
    const std::string candidate = Cat(folder.empty() ? "." : folder, "/", name);
    if (check(candidate)) return candidate;
  }
  return NotFoundError(Cat("there is no program '", name, "' in PATH"));
}

StatusOr<pid_t> StartProgram(const SpawnRequest& request) {
  // Here and not in the child, where only async-signal-safe calls are allowed.
  StatusOr<std::string> path = ProgramPath(request.program, request.environment);
  if (!path.ok()) return path.status();
  std::vector<std::string> words = request.arguments;
  words.insert(words.begin(), request.program);
  const std::vector<char*> arguments = Pointers(words);
  const std::vector<char*> environment = Pointers(request.environment);

  OpenFile ns, processes;
  const std::string ns_path = request.place.ns.empty() ? "" : "/run/netns/" + request.place.ns;
  C4_RETURN_ON_FAILURE(ns.Open(ns_path, O_RDONLY));
  C4_RETURN_ON_FAILURE(processes.Open(request.place.processes_file, O_WRONLY));
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) return ErrnoStatus(errno, "cannot make a pipe");
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
    return ErrnoStatus(fork_error, Cat("cannot start '", request.program, "'"));
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
      return ErrnoStatus(failed.error, Cat("cannot start '", *path, "' in host ", request.place.host_name,
                                           " of the fabric"));
    }
    const std::string text = Cat("cannot execute '", *path, "'");
    if (failed.error == ENOEXEC) {
      return PermissionDeniedError(Cat(text, ": it is neither a program nor a script with #!"));
    }
    return ErrnoStatus(failed.error, text);
  }
  return pid;
}

// By asking now and then: the kernels of the oldest systems that this runs on (4.18) have no file of a
// process to wait for.
StatusOr<int> ReapWithin(pid_t pid, std::chrono::milliseconds limit) {
  constexpr timespec kPause = {0, 2'000'000};
  const auto end = std::chrono::steady_clock::now() + limit;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if (ended < 0 && errno != EINTR) return ErrnoStatus(errno, Cat("cannot watch process ", pid));
    if (std::chrono::steady_clock::now() >= end) break;
    nanosleep(&kPause, nullptr);
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return DeadlineExceededError(Cat("no end after ", limit.count() / 1000, " s"));
}

std::string SignalName(int signal) {
  // Linux's numbers. The C library tells them from glibc 2.32 on only.
  static constexpr std::array kNames = {"HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",  "FPE",
                                        "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM", "STKFLT",
                                        "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",  "XCPU",
                                        "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
  if (signal < 1 || static_cast<size_t>(signal) > kNames.size()) return Cat("signal ", signal);
  return Cat("SIG", kNames[static_cast<size_t>(signal) - 1]);
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return Cat("was ended by signal ", signal, " (", SignalName(signal), ")");
  }
  return Cat("exited with code ", WEXITSTATUS(wait_status));
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
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

StatusOr<std::string> ExecutableFolder() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return InternalError(Cat("cannot read /proc/self/exe: ", error.message()));
  return path.parent_path().string();
}

}  // namespace c4::cli
