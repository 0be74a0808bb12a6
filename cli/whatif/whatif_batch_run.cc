#include "cli/whatif/whatif_batch_run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <filesystem>
#include <memory>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cli/base/memory_file.h"
#include "cli/base/process.h"
#include "cli/exit_codes.h"
#include "service/run_dir.h"

namespace c4::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kMaxRecordBytes = 1 << 20;
constexpr size_t kMaxReasonBytes = 1000;
constexpr int64_t kMebibyte = 1 << 20;

// SIGINT and SIGTERM as a file, for as long as this lives.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~Signals() {
    if (fd_ >= 0) close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_; }
  // 0: none came.
  int Next() const {
    signalfd_siginfo info;
    return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t before_{};
  int fd_ = -1;
};

// The last line that says something: what a program that fails says last is why.
std::string LastLine(const std::string& text) {
  size_t end = text.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "";
  const size_t before = text.rfind('\n', end);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  std::string line = text.substr(begin, end - begin + 1);
  const std::string name = "c4 whatif: ";
  if (line.compare(0, name.size(), name) == 0) line.erase(0, name.size());
  if (line.size() > kMaxReasonBytes) line.resize(kMaxReasonBytes);
  return line;
}

// A process that analyses one trace.
class Analysis {
 public:
  Analysis(BatchTrace trace, std::string mark) : trace_(std::move(trace)), mark_(std::move(mark)) {}
  ~Analysis() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (pid_fd_ >= 0) close(pid_fd_);
  }
  Analysis(const Analysis&) = delete;
  Analysis& operator=(const Analysis&) = delete;

  absl::Status Start(const BatchPlan& plan) {
    if (output_.fd() < 0 || errors_.fd() < 0)
      return service::ErrnoStatus(errno, "cannot make a file in memory");
    SpawnRequest request;
    request.program = plan.program;
    request.arguments = {"whatif", trace_.path, "--json", "--threads", "1"};
    if (!trace_.metadata.empty()) {
      request.arguments.insert(request.arguments.end(), {"--metadata", trace_.metadata});
    }
    if (!trace_.mapping.empty()) {
      request.arguments.insert(request.arguments.end(), {"--mapping", trace_.mapping});
    }
    request.arguments.insert(request.arguments.end(), plan.options.begin(), plan.options.end());
    request.environment = OwnEnvironment();
    request.stdout_fd = output_.fd();
    request.stderr_fd = errors_.fd();
    limits_ = plan.limits;
    began_ = Clock::now();
    const absl::StatusOr<pid_t> pid = Spawn(request);
    if (!pid.ok()) return pid.status();
    pid_ = *pid;
    if (limits_.memory_mib > 0) {
      const auto bytes = static_cast<rlim_t>(limits_.memory_mib * kMebibyte);
      const rlimit limit = {bytes, bytes};
      if (prlimit(pid_, RLIMIT_DATA, &limit, nullptr) != 0 && errno != ESRCH) {
        return service::ErrnoStatus(errno, "cannot limit the memory of a process");
      }
    }
    pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    return pid_fd_ >= 0 ? absl::OkStatus() : service::ErrnoStatus(errno, "cannot watch a process");
  }

  int pid_fd() const { return pid_fd_; }
  const std::string& name() const { return trace_.name; }
  std::string Report() const { return output_.Text(); }

  int MsLeft() const {
    if (limits_.time_s <= 0 || timed_out_) return -1;
    const double left_s = limits_.time_s - Seconds(Clock::now() - began_).count();
    return static_cast<int>(std::clamp(left_s * 1000 + 1, 0.0, 1e6));
  }
  void KillWhenLate() {
    if (MsLeft() != 0) return;
    timed_out_ = true;
    kill(-pid_, SIGKILL);
  }

  // Once pid_fd can be read.
  BatchRecord Reap() {
    BatchRecord record;
    rusage usage{};
    int status = 0;
    while (wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    record.trace = trace_.name;
    record.mark = mark_;
    record.limits = limits_;
    record.elapsed_s = Seconds(Clock::now() - began_).count();
    record.peak_mib = usage.ru_maxrss / 1024;
    Judge(status, &record);
    return record;
  }

 private:
  void Judge(int status, BatchRecord* record) const {
    const int code = ExitCode(status);
    const std::string said = LastLine(errors_.Text());
    record->reason = said;
    if (timed_out_) {
      record->state = TraceState::kTimedOut;
      record->reason =
          absl::StrCat("no end after ", limits_.time_s, " s: raise --time-limit, or choose --steps");
    } else if (code == kExitOk) {
      record->state = TraceState::kAnalysed;
      record->reason.clear();
    } else if (code == kExitBadData || code == kExitUsage) {
      record->state = TraceState::kRefused;
    } else if (code == kExitNoInput) {
      record->state = TraceState::kUnreadable;
    } else if (code == kExitNoMemory || said.find("bad_alloc") != std::string::npos) {
      record->state = TraceState::kNoMemory;
      record->reason = absl::StrCat("more than ", limits_.memory_mib,
                                    " MiB are needed: raise --memory, or choose --steps");
    } else {
      record->state = TraceState::kCrashed;
      const char* hint = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                             ? "; not by this batch: the machine may have run out of memory"
                             : "";
      record->reason =
          absl::StrCat("the analysis ", DescribeExit(status), hint, said.empty() ? "" : ": ", said);
    }
  }

  const BatchTrace trace_;
  const std::string mark_;
  MemoryFile output_{"c4-whatif-report"};
  MemoryFile errors_{"c4-whatif-errors"};
  BatchLimits limits_;
  Clock::time_point began_;
  pid_t pid_ = -1;
  int pid_fd_ = -1;
  bool timed_out_ = false;
};

class Batch {
 public:
  Batch(const BatchPlan& plan, const std::function<void(const BatchRecord&)>& progress)
      : plan_(plan), progress_(progress) {}

  absl::StatusOr<BatchResult> Run() {
    if (signals_.fd() < 0) return service::ErrnoStatus(errno, "cannot listen to signals");
    for (const std::string& folder : {ReportsFolder(plan_.out), StatesFolder(plan_.out)}) {
      std::error_code error;
      fs::create_directories(folder, error);
      if (error) return service::ErrnoStatus(error.value(), absl::StrCat("cannot make the folder ", folder));
    }
    while (next_ < plan_.traces.size() || !running_.empty()) {
      while (next_ < plan_.traces.size() && running_.size() < static_cast<size_t>(plan_.processes)) {
        C4_RETURN_IF_NOT_OK(Begin(plan_.traces[next_++]));
        if ((result_.signal = signals_.Next()) != 0) return result_;
      }
      C4_RETURN_IF_NOT_OK(Await());
      if (result_.signal != 0) return result_;
    }
    return result_;
  }

 private:
  absl::Status Begin(const BatchTrace& trace) {
    absl::StatusOr<std::string> mark = SourceMark(trace, plan_.options);
    if (!mark.ok()) {
      BatchRecord record;
      record.trace = trace.name;
      record.state = TraceState::kUnreadable;
      record.reason = std::string(mark.status().message());
      record.limits = plan_.limits;
      return Keep(record, "");
    }
    if (!plan_.again && IsFinished(trace, *mark)) return absl::OkStatus();
    running_.push_back(std::make_unique<Analysis>(trace, *std::move(mark)));
    return running_.back()->Start(plan_);
  }

  bool IsFinished(const BatchTrace& trace, const std::string& mark) {
    const absl::StatusOr<std::string> text =
        service::ReadSmallFile(StatePath(plan_.out, trace.name), kMaxRecordBytes, service::Links::kFollow);
    if (!text.ok()) return false;
    const absl::StatusOr<BatchRecord> record = ParseBatchRecord(*text);
    if (!record.ok() || !StillHolds(*record, mark, plan_.limits, plan_.retry)) return false;
    std::error_code error;
    if (record->state == TraceState::kAnalysed && !fs::exists(ReportPath(plan_.out, trace.name), error)) {
      return false;
    }
    ++result_.kept;
    Count(record->state);
    return true;
  }

  // Until one has ended, is late, or a signal came.
  absl::Status Await() {
    if (running_.empty()) return absl::OkStatus();
    std::vector<pollfd> entries = {{signals_.fd(), POLLIN, 0}};
    int wait_ms = -1;
    for (const std::unique_ptr<Analysis>& one : running_) {
      entries.push_back({one->pid_fd(), POLLIN, 0});
      const int left_ms = one->MsLeft();
      if (left_ms >= 0) wait_ms = wait_ms < 0 ? left_ms : std::min(wait_ms, left_ms);
    }
    if (poll(entries.data(), entries.size(), wait_ms) < 0 && errno != EINTR) {
      return service::ErrnoStatus(errno, "cannot wait for processes");
    }
    if ((result_.signal = signals_.Next()) != 0) return absl::OkStatus();
    std::vector<std::unique_ptr<Analysis>> still;
    absl::Status kept;
    for (size_t i = 0; i < running_.size(); ++i) {
      running_[i]->KillWhenLate();
      if (entries[i + 1].revents == 0 || !kept.ok()) {
        still.push_back(std::move(running_[i]));
        continue;
      }
      const BatchRecord record = running_[i]->Reap();
      kept = Keep(record, record.state == TraceState::kAnalysed ? running_[i]->Report() : "");
    }
    running_ = std::move(still);
    return kept;
  }

  // The report first: a record speaks of a report that is there.
  absl::Status Keep(const BatchRecord& record, const std::string& report) {
    const std::string path = ReportPath(plan_.out, record.trace);
    if (record.state == TraceState::kAnalysed) {
      C4_RETURN_IF_NOT_OK(service::WriteFileAtomically(path, report, 0644));
    } else if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return service::ErrnoStatus(errno, absl::StrCat("cannot remove the former ", path));
    }
    C4_RETURN_IF_NOT_OK(
        service::WriteFileAtomically(StatePath(plan_.out, record.trace), BatchRecordJson(record), 0644));
    Count(record.state);
    progress_(record);
    return absl::OkStatus();
  }

  void Count(TraceState state) {
    if (state == TraceState::kAnalysed) {
      ++result_.analysed;
    } else if (state == TraceState::kRefused || state == TraceState::kUnreadable) {
      ++result_.refused;
    } else {
      ++result_.failed;
    }
  }

  const BatchPlan& plan_;
  const std::function<void(const BatchRecord&)>& progress_;
  const Signals signals_;
  BatchResult result_;
  size_t next_ = 0;
  std::vector<std::unique_ptr<Analysis>> running_;
};

}  // namespace

absl::StatusOr<BatchResult> RunBatch(const BatchPlan& plan,
                                     const std::function<void(const BatchRecord&)>& progress) {
  return Batch(plan, progress).Run();
}

}  // namespace c4::cli
