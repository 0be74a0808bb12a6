#include "fabric/emulator/command.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace c4::fabric {
namespace {

namespace fs = std::filesystem;

// Users' PATH often lacks the sbin folders, where these tools live.
std::string FindTool(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  const std::string folders = absl::StrCat(path != nullptr ? path : "", ":/usr/sbin:/sbin:/usr/bin:/bin");
  for (const std::string& folder :
       std::vector<std::string>(absl::StrSplit(folders, ':', absl::SkipEmpty()))) {
    std::string candidate = absl::StrCat(folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

absl::StatusOr<int> OpenNamespace(const std::string& ns) {
  const std::string path = absl::StrCat(kNamespaceDir, "/", ns);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open network namespace ", path));
  return fd;
}

struct Pipe {
  int read_fd = -1;
  int write_fd = -1;
  bool Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_fd = ends[0];
    write_fd = ends[1];
    return true;
  }
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  ~Pipe() {
    Close(&read_fd);
    Close(&write_fd);
  }
};

// Feeds and drains a child at once, so that neither side waits for a full pipe.
void Exchange(std::string_view input, Pipe* in, Pipe* out, Pipe* err, std::string* output,
              std::string* errors) {
  fcntl(in->write_fd, F_SETFL, O_NONBLOCK);
  while (out->read_fd >= 0 || err->read_fd >= 0) {
    if (input.empty()) Pipe::Close(&in->write_fd);
    pollfd fds[3] = {{out->read_fd, POLLIN, 0}, {err->read_fd, POLLIN, 0}, {in->write_fd, POLLOUT, 0}};
    if (poll(fds, 3, -1) < 0 && errno != EINTR) return;
    if (fds[2].revents != 0) {
      const ssize_t count = write(in->write_fd, input.data(), input.size());
      if (count > 0) input.remove_prefix(static_cast<size_t>(count));
      if (count < 0 && errno != EAGAIN) input = {};
    }
    const auto drain = [](const pollfd& fd, int* end, std::string* to) {
      if (fd.revents == 0) return;
      char buffer[16384];
      const ssize_t count = read(*end, buffer, sizeof buffer);
      if (count > 0) to->append(buffer, static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) Pipe::Close(end);
    };
    drain(fds[0], &out->read_fd, output);
    drain(fds[1], &err->read_fd, errors);
  }
}

// "Command failed -:12" of iproute2 to "line 12: TEXT".
std::string FailedLine(std::string_view input, const std::string& errors) {
  const size_t at = errors.find("Command failed -:");
  if (at == std::string::npos) return "";
  size_t number = 0;
  const char* digits = errors.data() + at + 17;
  std::from_chars(digits, errors.data() + errors.size(), number);
  const std::vector<std::string> lines = absl::StrSplit(absl::string_view(input.data(), input.size()), '\n');
  if (number == 0 || number > lines.size()) return "";
  return absl::StrCat(" at `", lines[number - 1], "`");
}

absl::Status Run(const char* tool, const std::vector<std::string>& arguments, const NamespaceText& batch) {
  if (batch.text.empty()) return absl::OkStatus();
  std::vector<std::string> command = {tool};
  command.insert(command.end(), arguments.begin(), arguments.end());
  // Not by `ip -n`, which wants to change the mounts as well, and cannot where / is none (a plain chroot).
  return RunCommand(command, batch.text, batch.ns).status();
}

}  // namespace

absl::Status CheckRights() {
  uint64_t effective = 0;
  const std::string status = ReadText("/proc/self/status");
  const size_t at = status.find("CapEff:\t");
  if (at != std::string::npos) {
    std::from_chars(status.data() + at + 8, status.data() + status.size(), effective, 16);
  }
  constexpr uint64_t kNetAdmin = uint64_t{1} << 12, kSysAdmin = uint64_t{1} << 21;
  if ((effective & kNetAdmin) == 0 || (effective & kSysAdmin) == 0) {
    return absl::PermissionDeniedError(
        "a fabric is made of network namespaces, and making those needs root (CAP_SYS_ADMIN and "
        "CAP_NET_ADMIN): use sudo, or in a container --privileged");
  }
  for (const auto& [tool, package] :
       {std::pair("ip", "iproute2"), std::pair("tc", "iproute2"), std::pair("nft", "nftables")}) {
    if (FindTool(tool).empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a fabric is made with `", tool, "`, which is not installed: apt-get install ", package));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& command, std::string_view input,
                                       const std::string& ns) {
  const std::string program = FindTool(command.front());
  if (program.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("`", command.front(), "` is not installed"));
  }
  int ns_fd = -1;
  if (!ns.empty()) {
    const absl::StatusOr<int> opened = OpenNamespace(ns);
    if (!opened.ok()) return opened.status();
    ns_fd = *opened;
  }
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  Pipe in, out, err;
  if (!in.Open() || !out.Open() || !err.Open()) {
    const int error = errno;
    if (ns_fd >= 0) close(ns_fd);
    return absl::ErrnoToStatus(error, "cannot make a pipe");
  }
  const pid_t pid = fork();
  if (pid == 0) {
    // Async-signal-safe calls only. The caller's mask and what it ignores are not for the tool.
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    signal(SIGPIPE, SIG_DFL);
    if (ns_fd >= 0 && setns(ns_fd, CLONE_NEWNET) != 0) _exit(126);
    dup2(in.read_fd, STDIN_FILENO);
    dup2(out.write_fd, STDOUT_FILENO);
    dup2(err.write_fd, STDERR_FILENO);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  const int fork_error = errno;
  if (ns_fd >= 0) close(ns_fd);
  if (pid < 0) return absl::ErrnoToStatus(fork_error, absl::StrCat("cannot start ", program));
  Pipe::Close(&in.read_fd);
  Pipe::Close(&out.write_fd);
  Pipe::Close(&err.write_fd);
  // A tool that ends before it has read everything must not end us; per thread, so that nobody else is met.
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  std::string output, errors;
  Exchange(input, &in, &out, &err, &output, &errors);
  const timespec at_once = {};
  sigtimedwait(&pipe_signal, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0) {
    // Somebody else in this process reaps every child: the tool's own complaint has to do.
    if (errno != EINTR) {
      wait_status = errors.empty() ? 0 : 256;
      break;
    }
  }
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return output;
  return absl::InternalError(absl::StrCat("`", absl::StrJoin(command, " "), "`",
                                          ns.empty() ? "" : " in " + ns, " failed", FailedLine(input, errors),
                                          ": ", absl::StripAsciiWhitespace(errors)));
}

absl::Status RunIp(const NamespaceText& batch) {
  return Run("ip", {"-batch", "-"}, batch);
}

absl::Status RunIp(const std::vector<NamespaceText>& batches) {
  for (const NamespaceText& batch : batches) {
    if (absl::Status fault = RunIp(batch); !fault.ok()) return fault;
  }
  return absl::OkStatus();
}

absl::Status RunTc(const NamespaceText& batch) {
  return Run("tc", {"-batch", "-"}, batch);
}

absl::Status RunNft(const NamespaceText& script) {
  return Run("nft", {"-f", "-"}, script);
}

absl::Status InNamespace(const std::string& ns, const std::function<absl::Status()>& work) {
  const absl::StatusOr<int> fd = OpenNamespace(ns);
  if (!fd.ok()) return fd.status();
  absl::Status result;
  std::thread thread([&] {
    if (setns(*fd, CLONE_NEWNET) != 0) {
      result = absl::ErrnoToStatus(errno, "cannot enter network namespace " + ns);
      return;
    }
    result = work();
  });
  thread.join();
  close(*fd);
  return result;
}

absl::Status WriteSysctls(const std::string& ns, const Sysctls& sysctls) {
  return InNamespace(ns, [&]() -> absl::Status {
    for (const auto& [name, value] : sysctls) {
      const std::string path = "/proc/sys/net/" + name;
      // A kernel without IPv6 has none to turn off.
      if (name.starts_with("ipv6/") && access(path.c_str(), F_OK) != 0) continue;
      if (absl::Status fault = WriteText(path, value); !fault.ok()) return fault;
    }
    return absl::OkStatus();
  });
}

std::vector<std::string> NamespaceNames() {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(kNamespaceDir, error)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool NamespaceExists(const std::string& ns) {
  return access(absl::StrCat(kNamespaceDir, "/", ns).c_str(), F_OK) == 0;
}

std::vector<int> ProcessesIn(const std::string& ns) {
  std::vector<int> pids;
  struct stat own = {};
  if (stat(absl::StrCat(kNamespaceDir, "/", ns).c_str(), &own) != 0) return pids;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    int pid = 0;
    struct stat other = {};
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    if (stat(absl::StrCat("/proc/", pid, "/ns/net").c_str(), &other) != 0) continue;
    if (other.st_ino == own.st_ino && other.st_dev == own.st_dev) pids.push_back(pid);
  }
  return pids;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();  // what ends while it is read is an error, which iterators throw
  return text.str();
}

absl::Status WriteText(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const ssize_t count = write(fd, text.data(), text.size());
  const int error = errno;
  close(fd);
  if (count == static_cast<ssize_t>(text.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write '", std::string(text), "' to ", path));
}

}  // namespace c4::fabric
