#include "tests/service/harness.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <signal.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "cli/base/process.h"
#include "cli/launch/launch_plan.h"
#include "wire/segment.h"

namespace c4::service_test {
namespace {

namespace fs = std::filesystem;

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Without what the user, or ctest, has set for C4.
// Logs of jobs go to `logs`.
std::vector<std::string> CleanEnvironment(const std::vector<std::string>& more, const std::string& logs) {
  std::vector<std::string> environment = cli::OwnEnvironment();
  std::erase_if(environment, [](const std::string& entry) {
    return entry.starts_with("C4_") || entry.starts_with("C4A_") || entry.starts_with("C4D_") ||
           entry.starts_with("NCCL_");
  });
  environment.push_back("C4_LOG_DIR=" + logs);
  environment.insert(environment.end(), more.begin(), more.end());
  return environment;
}

bool Alive(pid_t pid) {
  const std::optional<cli::ProcessStat> stat = cli::ReadProcessStat(pid);
  return stat.has_value() && stat->state != 'Z' && stat->state != 'X';
}

template <typename T>
bool ReadAt(int fd, uint64_t offset, T* value) {
  return pread(fd, value, sizeof(T), static_cast<off_t>(offset)) == static_cast<ssize_t>(sizeof(T));
}

// The communicator that has done most, of one segment. Reads no more than it needs: tests watch the pace of
// the job that they share the processors with.
bool ReadCounters(int fd, int* rank, RankCounters* counters) {
  wire::SegmentHeader header;
  if (!ReadAt(fd, 0, &header) || header.header.magic != wire::kSegmentMagic) return false;
  *rank = header.rank_label;
  counters->pid = static_cast<pid_t>(header.header.writer.pid);
  for (uint32_t i = 0; i < header.communicators_used; ++i) {
    wire::CommunicatorSlot slot;
    if (!ReadAt(fd, header.communicators.offset + uint64_t{i} * header.communicators.stride_bytes, &slot))
      break;
    if (slot.phase == wire::kPhaseFree) continue;
    counters->called = std::max(counters->called, slot.called.count);
    counters->finished = std::max(counters->finished, slot.finished.count);
  }
  return true;
}

}  // namespace

std::string Binary(const std::string& name) {
  return cli::EnvironmentValue(cli::OwnEnvironment(), "C4_BUILD_DIR").value_or("build") + "/bin/" + name;
}

ScratchDir::ScratchDir() : path_("/dev/shm/c4-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot make " << path_;
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Process::Process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                 const std::string& output_prefix)
    : prefix_(output_prefix) {
  cli::SpawnRequest request = {command.front(), {command.begin() + 1, command.end()}, environment};
  request.death_signal = SIGTERM;  // the launcher then ends what it started
  request.stdout_fd = open((prefix_ + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  request.stderr_fd = open((prefix_ + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const absl::StatusOr<pid_t> pid = cli::Spawn(request);
  close(request.stdout_fd);
  close(request.stderr_fd);
  if (pid.ok()) {
    pid_ = *pid;
  } else {
    ADD_FAILURE() << pid.status();
    ended_ = true;
  }
}

Process::~Process() {
  if (ended_) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool Process::Wait(Seconds limit) {
  const auto until = Clock::now() + limit;
  while (!ended_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = true;
      exit_code_ = cli::ExitCode(status);
    } else if (Clock::now() >= until) {
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return true;
}

std::string Process::Output() const {
  return FileText(prefix_ + ".out");
}

std::string Process::Errors() const {
  return FileText(prefix_ + ".err");
}

void Process::Signal(int signal) const {
  if (!ended_) kill(pid_, signal);
}

CommandResult RunC4(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& more_environment, Seconds limit) {
  const ScratchDir scratch;
  std::vector<std::string> command = {Binary("c4")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Process process(command, CleanEnvironment(more_environment, scratch.path() + "/logs"),
                  scratch.path() + "/c4");
  if (!process.Wait(limit)) {
    ADD_FAILURE() << "c4 " << arguments.front() << " did not end within " << limit.count() << " s";
    process.Signal(SIGINT);
    process.Wait(Seconds(15));
  }
  return {process.exit_code(), process.Output(), process.Errors()};
}

RunningJob::RunningJob(int ranks, const std::vector<std::string>& options,
                       const std::vector<std::string>& command,
                       const std::vector<std::string>& more_environment,
                       const std::function<void(const std::string& base_dir)>& prepare)
    : ranks_(ranks) {
  if (prepare) prepare(base_dir());
  std::vector<std::string> words = {Binary("c4"),          "run",       "-n",
                                    std::to_string(ranks), "--run-dir", base_dir()};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  launcher_ = std::make_unique<Process>(words, CleanEnvironment(more_environment, log_root()),
                                        base_dir() + "/launcher");
}

RunningJob::~RunningJob() {
  const std::vector<pid_t> processes = Processes();
  launcher_->Signal(SIGINT);
  EXPECT_TRUE(launcher_->Wait(Seconds(20))) << "c4 run did not end after SIGINT";
  for (const pid_t pid : processes) EXPECT_FALSE(Alive(pid)) << "process " << pid << " was left running";
  EXPECT_TRUE(RunDirIsClean());
  if (testing::Test::HasFailure()) {
    printf("--- output of c4 run\n%s--- errors of c4 run\n%s---\n", launcher_->Output().c_str(),
           launcher_->Errors().c_str());
  }
}

std::string RunningJob::LogDir() const {
  std::error_code error;
  std::filesystem::directory_iterator entry(log_root(), error);
  return error || entry == std::filesystem::directory_iterator() ? "" : entry->path().string();
}

Json RunningJob::Verdicts() const {
  const CommandResult result = RunC4({"verdicts", "--all", "--json", "--run-dir", base_dir()});
  const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json["verdicts"] : Json::array();
}

Json RunningJob::Status() const {
  const CommandResult result = RunC4({"status", "--json", "--run-dir", base_dir()});
  const Json json = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json{{"ranks", Json::array()}, {"agents", Json::array()}};
}

std::vector<Json> RunningJob::Open(const Json& verdicts) {
  std::vector<Json> open;
  for (const Json& verdict : verdicts) {
    if (verdict["state"] != "cleared") open.push_back(verdict);
  }
  return open;
}

bool RunningJob::AwaitAtWork(uint64_t operations, Seconds limit) const {
  return Eventually(limit, [&] {
    const Json ranks = Status()["ranks"];
    return ranks.size() == static_cast<size_t>(ranks_) &&
           std::ranges::all_of(ranks, [&](const Json& rank) { return rank["finished"] >= operations; });
  });
}

std::vector<RankCounters> RunningJob::Counters() const {
  std::vector<RankCounters> all(static_cast<size_t>(ranks_));
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(base_dir(), error)) {
    if (entry.path().extension() != wire::kSegmentSuffix) continue;
    int rank = -1;
    RankCounters counters;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    if (ReadCounters(fd, &rank, &counters) && rank >= 0 && rank < ranks_) {
      all[static_cast<size_t>(rank)] = counters;
    }
    close(fd);
  }
  return all;
}

RankCounters RunningJob::Counters(int rank) const {
  return Counters()[static_cast<size_t>(rank)];
}

uint64_t RunningJob::LeastFinished() const {
  return std::ranges::min(Counters(), {}, &RankCounters::finished).finished;
}

pid_t RunningJob::DaemonPid(const std::string& name) const {
  for (const pid_t pid : cli::ChildrenOf(launcher_->pid())) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored);
    if (program.filename() == name) return pid;
  }
  return 0;
}

Json RunningJob::MasterEntry() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base_dir() + "/masters", error)) {
    if (entry.path().extension() != ".json") continue;
    Json json = Json::parse(FileText(entry.path()), nullptr, /*allow_exceptions=*/false);
    if (json.is_object()) return json;
  }
  return Json::object();
}

std::vector<pid_t> RunningJob::Processes() const {
  std::vector<pid_t> processes = cli::ChildrenOf(launcher_->pid());
  for (size_t i = 0; i < processes.size(); ++i) {
    const std::vector<pid_t> children = cli::ChildrenOf(processes[i]);
    processes.insert(processes.end(), children.begin(), children.end());
  }
  return processes;
}

bool RunningJob::RunDirIsClean() const {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base_dir(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("launcher.") || name == "logs") continue;  // our own
    if (name == "masters" && fs::is_empty(entry.path(), error)) continue;
    printf("left in the run directory: %s\n", name.c_str());
    return false;
  }
  return true;
}

bool Eventually(Seconds limit, const std::function<bool()>& holds) {
  const auto until = Clock::now() + limit;
  while (!holds()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return true;
}

}  // namespace c4::service_test
