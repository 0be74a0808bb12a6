#include "benchmarks/elastic_range.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "fabric/emulator/fabric.h"

namespace c4::benchmarks {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{20};
constexpr absl::Duration kAnswerLimit = absl::Seconds(2);

}  // namespace

double UnixNowS() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ElasticRange::ElasticRange(ElasticRangeOptions options, Say say)
    : options_(std::move(options)), say_(std::move(say)) {}

ElasticRange::~ElasticRange() {
  End();
}

absl::Status ElasticRange::Start() {
  const absl::StatusOr<fabric::Fabric> made = fabric::Fabric::Up(options_.spec);
  if (!made.ok()) return made.status();
  fabric_up_ = true;
  cli::LaunchOptions job;
  job.fabric = options_.spec.name;
  job.ranks = options_.ranks;
  job.ranks_per_host = {1};
  job.job = options_.job;
  job.rank_logs = true;
  job.keep_log = !options_.log_dir.empty();
  job.log_dir = options_.log_dir;
  job.command = options_.command;
  if (options_.with_c4d) {
    job.paths = true;
    job.elastic = true;
    job.recovery = options_.recovery_file;
    job.checkpoint = options_.checkpoint;
  } else {
    job.monitor = false;
    job.restarts = 1'000'000;
    job.grace_s = 0;
  }
  absl::StatusOr<std::unique_ptr<cli::Launcher>> launcher = cli::Launcher::Start(std::move(job), say_);
  if (!launcher.ok()) return launcher.status();
  launcher_ = *std::move(launcher);
  begun_ = 1;
  injector_ = std::make_unique<fabric::Injector>(
      fabric::Injector::Options{.base_dir = "", .job = options_.job, .seed = options_.seed, .plan_path = ""});
  if (!options_.with_c4d) return absl::OkStatus();
  cli::MasterOptions master;
  master.job = options_.job;
  absl::StatusOr<std::unique_ptr<cli::MasterClient>> client = cli::ConnectToMaster(master);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  return absl::OkStatus();
}

void ElasticRange::TakeLine(const std::string& line) {
  if (line.starts_with("begins with the checkpoint")) {
    ++begun_;
    since_begun_.clear();
    return;
  }
  constexpr size_t kWord = sizeof "iteration " - 1;
  const size_t loss = line.find(": loss ");
  Iteration iteration;
  if (!line.starts_with("iteration ") || loss == std::string::npos ||
      !absl::SimpleAtoi(line.substr(kWord, loss - kWord), &iteration.number)) {
    return;
  }
  const size_t from = loss + sizeof ": loss " - 1;
  iteration.loss = line.substr(from, line.find(',', from) - from);
  iteration.unix_s = UnixNowS();
  if (last_iteration_s_ > 0) longest_gap_s_ = std::max(longest_gap_s_, iteration.unix_s - last_iteration_s_);
  last_iteration_s_ = iteration.unix_s;
  const auto [known, is_new] = losses_.try_emplace(iteration.number, iteration.loss);
  if (!is_new && known->second != iteration.loss) {
    contradictions_.push_back(absl::StrCat("iteration ", iteration.number, ": loss ", known->second,
                                           ", and then ", iteration.loss));
  }
  since_begun_.push_back(std::move(iteration));
}

void ElasticRange::ReadLog() {
  const int fd = open(launcher_->RankLogPath(0).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char buffer[65536];
  for (ssize_t count; (count = pread(fd, buffer, sizeof buffer, static_cast<off_t>(log_at_))) > 0;) {
    log_at_ += static_cast<size_t>(count);
    rest_.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  for (size_t end; (end = rest_.find('\n')) != std::string::npos; rest_.erase(0, end + 1)) {
    TakeLine(rest_.substr(0, end));
  }
}

absl::StatusOr<bool> ElasticRange::Watch(double seconds, const std::function<bool()>& done) {
  const double until_s = UnixNowS() + seconds;
  while (true) {
    const bool running = launcher_->Poll(kLookEvery);
    if (launcher_->interrupted()) return absl::CancelledError("interrupted");
    if (!running) {
      return absl::AbortedError(absl::StrCat("the job ended with ", launcher_->outcome().exit_code));
    }
    if (launcher_->plan().incarnation != incarnation_) {
      incarnation_ = launcher_->plan().incarnation;
      restarted_s_ = UnixNowS();
    }
    ReadLog();
    if (done != nullptr && done()) return true;
    if (UnixNowS() >= until_s) return false;
  }
}

absl::StatusOr<fabric::Applied> ElasticRange::Inject(const fabric::Injection& injection) {
  return injector_->Inject(injection);
}

absl::Status ElasticRange::Heal() {
  return fabric::HealJob("", options_.job);
}

absl::StatusOr<v1::GetRecoveryReply> ElasticRange::Recovery(uint32_t notes) const {
  return client_->GetRecovery(notes, kAnswerLimit);
}

absl::Status ElasticRange::Release(const std::string& host) const {
  v1::DecideRecoveryRequest request;
  request.set_node(host);
  request.set_by("benchmark");
  request.set_why("repaired");
  return client_->ReleaseNode(request, kAnswerLimit).status();
}

std::string ElasticRange::HostOfRank(int rank) const {
  const cli::LaunchPlan& plan = launcher_->plan();
  return plan.hosts[static_cast<size_t>(cli::HostIndexOf(plan, rank))].name;
}

absl::Status ElasticRange::KillRanks() {
  return launcher_->SignalRank(0, SIGKILL);
}

void ElasticRange::End() {
  injector_.reset();
  client_.reset();
  launcher_.reset();
  if (fabric_up_) fabric::Fabric::Down(options_.spec.name).IgnoreError();
  fabric_up_ = false;
}

}  // namespace c4::benchmarks
