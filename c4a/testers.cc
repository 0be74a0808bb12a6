#include "c4a/testers.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "absl/time/clock.h"
#include "c4a/rank_place.h"
#include "service/log.h"
#include "service/text.h"

namespace c4::agent {
namespace {

using service::Concat;

constexpr char kProgram[] = "c4-validate-worker";
constexpr int kCannotJoin = 125;  // exit codes of a child that never became a tester
constexpr int kCannotExecute = 126;

std::string Beside(const char* name) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : (own.parent_path() / name).string();
}

std::string EndOf(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotJoin) {
    return "its tester could not take its place (user, processors, control group or network): the agent "
           "needs root for that";
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotExecute) {
    return Concat("there is no ", kProgram, " beside the agent: install it there");
  }
  if (WIFSIGNALED(status)) return Concat("its tester was ended by signal ", WTERMSIG(status));
  return Concat("its tester ended with code ", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

// In the child: system calls alone.
[[noreturn]] void Become(const char* program, char* const* arguments, char* const* environment,
                         const RankPlace& place, int input, int output) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (place.Enter() != nullptr) _exit(kCannotJoin);
  if (dup2(input, 0) < 0 || dup2(output, 1) < 0) _exit(kCannotJoin);
  close_range(3, ~0U, 0);
  execve(program, arguments, environment);
  _exit(kCannotExecute);
}

}  // namespace

Testers::Testers(std::string program, OnAnswer on_answer)
    : program_(program.empty() ? Beside(kProgram) : std::move(program)), on_answer_(std::move(on_answer)) {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Testers::~Testers() {
  End();
  if (wake_ >= 0) close(wake_);
}

void Testers::Prepare(std::vector<Spec> testers, absl::Duration limit) {
  End();
  stop_ = false;
  thread_ = std::thread([this, testers = std::move(testers), limit] { Run(testers, limit); });
}

void Testers::Order(uint32_t id, const tester::Order& order) {
  const std::lock_guard lock(mutex_);
  const auto found = testers_.find(id);
  if (found == testers_.end() || found->second.input < 0) return;
  const std::string line = tester::ToLine(order) + "\n";
  // A pipe holds more than any order; one that is full belongs to a tester that does not read, and is lost.
  const ssize_t ignored = write(found->second.input, line.data(), line.size());
  (void)ignored;
}

void Testers::End() {
  if (!thread_.joinable()) return;
  stop_ = true;
  eventfd_write(wake_, 1);
  thread_.join();
}

void Testers::Start(const Spec& spec, size_t of_how_many) {
  const absl::StatusOr<RankPlace> place = RankPlace::Of(spec.pid);
  if (!place.ok()) return on_answer_(spec.id, tester::Fault{std::string(place.status().message())});
  const int threads = std::max(1, place->processors() / static_cast<int>(of_how_many));
  std::vector<std::string> words = {program_,         "--threads", Concat(threads), "--of-pid",
                                    Concat(spec.pid), "--gpu",     spec.gpu};
  std::vector<std::string> variables = place->environment();
  for (const char* const name : {"PATH", "LD_LIBRARY_PATH"}) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in the agent changes its environment
    if (const char* const value = getenv(name)) variables.push_back(Concat(name, "=", value));
  }
  const auto pointers = [](std::vector<std::string>* texts) {
    std::vector<char*> all;
    for (std::string& text : *texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  const std::vector<char*> arguments = pointers(&words);
  const std::vector<char*> environment = pointers(&variables);
  int to[2] = {-1, -1};
  int from[2] = {-1, -1};
  if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
    for (const int fd : {to[0], to[1]}) {
      if (fd >= 0) close(fd);
    }
    return on_answer_(spec.id, tester::Fault{"its tester could not be started: no pipes"});
  }
  const pid_t child = fork();
  if (child == 0) {
    Become(program_.c_str(), arguments.data(), environment.data(), *place, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  if (child < 0) {
    close(to[1]);
    close(from[0]);
    return on_answer_(spec.id, tester::Fault{Concat("its tester could not be started: ", strerror(errno))});
  }
  fcntl(to[1], F_SETFL, O_NONBLOCK);
  fcntl(from[0], F_SETFL, O_NONBLOCK);
  const std::lock_guard lock(mutex_);
  testers_[spec.id] = {spec.id, child, to[1], from[0], ""};
}

// False: it has ended.
bool Testers::Read(Tester* tester) {
  char piece[4096];
  const ssize_t bytes = read(tester->output, piece, sizeof piece);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0) return false;
  tester->line.append(piece, static_cast<size_t>(bytes));
  for (size_t end = 0; (end = tester->line.find('\n')) != std::string::npos; tester->line.erase(0, end + 1)) {
    const absl::StatusOr<tester::Answer> answer = tester::ParseAnswer(tester->line.substr(0, end));
    on_answer_(tester->id, answer.ok() ? *answer : tester::Fault{std::string(answer.status().message())});
  }
  return tester->line.size() <= tester::kLongestLine;
}

void Testers::Close(Tester* tester) {
  close(tester->input);
  close(tester->output);
  tester->input = tester->output = -1;
  kill(tester->pid, SIGKILL);
  int status = 0;
  while (waitpid(tester->pid, &status, 0) < 0 && errno == EINTR) {
  }
  tester->pid = -1;
  if (!stop_) on_answer_(tester->id, tester::Fault{EndOf(status)});
}

void Testers::Run(const std::vector<Spec>& testers, absl::Duration limit) {
  pthread_setname_np(pthread_self(), "c4-testers");
  const absl::Time end = absl::Now() + limit;
  eventfd_t ignored = 0;
  eventfd_read(wake_, &ignored);
  for (const Spec& spec : testers) {
    if (!stop_) Start(spec, testers.size());
  }
  std::vector<pollfd> entries;
  std::vector<Tester*> open;
  while (!stop_ && absl::Now() < end) {
    entries.assign(1, {wake_, POLLIN, 0});
    open.assign(1, nullptr);
    for (auto& [id, tester] : testers_) {
      if (tester.pid < 0) continue;
      entries.push_back({tester.output, POLLIN, 0});
      open.push_back(&tester);
    }
    if (open.size() == 1) break;
    poll(entries.data(), entries.size(), static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now())) + 1);
    for (size_t i = 1; i < open.size(); ++i) {
      if (entries[i].revents == 0 || Read(open[i])) continue;
      const std::lock_guard lock(mutex_);
      Close(open[i]);
    }
  }
  stop_ = true;  // whoever is left has been asked to end
  const std::lock_guard lock(mutex_);
  for (auto& [id, tester] : testers_) {
    if (tester.pid >= 0) Close(&tester);
  }
  testers_.clear();
}

}  // namespace c4::agent
