#include "cli/demo.h"

#include <algorithm>
#include <cstdio>
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/job_dir.h"
#include "cli/process.h"
#include "service/address.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kLookEvery{100};
constexpr seconds kStartLimit{15};
constexpr seconds kHealthyTime{5};
constexpr seconds kSuspectPatience{8};  // beyond the limit, to say how late it was
constexpr seconds kConfirmLimit{8};
constexpr seconds kAfterConfirmed{1};
constexpr seconds kClearLimit{8};
constexpr seconds kQuietTime{3};
constexpr double kSuspectLimit_s = 5;
constexpr absl::Duration kAnswerLimit = absl::Seconds(2);

}  // namespace

int64_t Demo::NowNs() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_)
      .count();
}

void Demo::Say(const std::string& text) const {
  printf("[%5.1f s] %s\n", static_cast<double>(NowNs()) / 1e9, text.c_str());
  fflush(stdout);
}

absl::Status Demo::StartJob() {
  LaunchOptions options;
  options.ranks = ranks_;
  options.rank_logs = true;  // the table of all_reduce_perf would drown the account
  const absl::StatusOr<std::string> folder = OwnFolder();
  if (!folder.ok()) return folder.status();
  // The pause leaves the processors mostly idle: the demo is about a hang, not about speed.
  options.command = {*folder + "/all_reduce_perf", "-b", "1M", "-e", "1M", "-N", "0", "--pause-ms", "20"};
  absl::StatusOr<std::unique_ptr<Launcher>> launcher =
      Launcher::Start(std::move(options), [this](const std::string& text) { Say(text); });
  if (!launcher.ok()) return launcher.status();
  launcher_ = *std::move(launcher);
  if (launcher_->interrupted()) return absl::CancelledError("interrupted");
  if (!launcher_->monitored()) {
    return absl::FailedPreconditionError(
        "the agent or the master is missing; build everything first (`make`)");
  }
  master_.job = launcher_->plan().job;
  absl::StatusOr<std::unique_ptr<MasterClient>> client = ConnectToMaster(master_);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  judge_ = std::make_unique<DemoJudge>(
      DemoCulprit{victim_, static_cast<uint32_t>(launcher_->RankPid(victim_)), service::HostName()},
      kSuspectLimit_s);
  Say(absl::StrFormat("job %s: %d ranks of all_reduce_perf over loopback, watched by c4a and c4d_master (%s)",
                      master_.job, ranks_, FindMaster(master_).value_or(FoundMaster()).address));
  return absl::OkStatus();
}

absl::Status Demo::Look() {
  const absl::StatusOr<v1::ListVerdictsReply> reply =
      client_->ListVerdicts(/*include_cleared=*/true, kAnswerLimit);
  if (!reply.ok()) return reply.status();
  judge_->Observe({reply->verdicts().begin(), reply->verdicts().end()}, NowNs());
  return absl::OkStatus();
}

absl::StatusOr<bool> Demo::Watch(milliseconds time, const std::function<bool()>& done) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!done()) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    if (left <= milliseconds(0)) return false;
    const bool running = launcher_->Poll(std::min(left, kLookEvery));
    if (launcher_->interrupted()) return absl::CancelledError("interrupted");
    if (!running) return absl::AbortedError("the job ended in the middle of the demo");
    if (absl::Status fault = Look(); !fault.ok()) return fault;
  }
  return true;
}

absl::StatusOr<uint64_t> Demo::LeastCalled() {
  const absl::StatusOr<v1::GetStatusReply> status = client_->GetStatus(kAnswerLimit);
  if (!status.ok()) return status.status();
  if (status->ranks_size() < ranks_) return 0;
  uint64_t least = UINT64_MAX;
  for (const v1::RankStatus& rank : status->ranks()) least = std::min<uint64_t>(least, rank.called());
  return least;
}

absl::Status Demo::ExpectProgress(uint64_t before) {
  const absl::StatusOr<uint64_t> now = LeastCalled();
  if (!now.ok()) return now.status();
  if (*now <= before)
    judge_->AddFault(
        absl::StrFormat("the job stands still: some rank has called no operation after its %d", before));
  return absl::OkStatus();
}

absl::Status Demo::PlayHealthy() {
  judge_->BeginPhase(DemoPhaseKind::kHealthy, "nothing", "no verdict", NowNs());
  uint64_t called = 0;
  absl::Status fault;
  // Ten operations of every rank: past the start, when all of them make their connections.
  const absl::StatusOr<bool> started = Watch(kStartLimit, [&] {
    const absl::StatusOr<uint64_t> least = LeastCalled();
    if (least.ok()) called = *least;
    fault = least.status();
    return !fault.ok() || called >= 10;
  });
  if (!started.ok()) return started.status();
  if (!fault.ok()) return fault;
  if (!*started) {
    return absl::DeadlineExceededError(
        absl::StrCat("not all ranks were seen at work; the last lines of rank ", victim_, ":\n",
                     LastLines(launcher_->RankLogPath(victim_), 10, "    ")));
  }
  Say(absl::StrFormat("all ranks at work, %d operations so far; %d s in which nothing is wrong", called,
                      kHealthyTime.count()));
  const absl::StatusOr<bool> watched = Watch(kHealthyTime, [] { return false; });
  if (!watched.ok()) return watched.status();
  if (fault = ExpectProgress(called); !fault.ok()) return fault;
  judge_->EndPhase();
  Say(judge_->phases().back().correct() ? "no verdict, as it should be" : "NOT RIGHT, see below");
  return absl::OkStatus();
}

absl::Status Demo::PlayStopped() {
  judge_->BeginPhase(
      DemoPhaseKind::kStopped, absl::StrCat("SIGSTOP to rank ", victim_),
      absl::StrCat("non-communication hang, rank ", victim_, ", suspected within 5 s, then confirmed"),
      NowNs());
  const pid_t pid = launcher_->RankPid(victim_);
  if (absl::Status fault = launcher_->SignalRank(victim_, SIGSTOP); !fault.ok()) return fault;
  Say(absl::StrFormat("rank %d (pid %d) is stopped; all the others now wait for it", victim_, pid));
  const absl::StatusOr<bool> suspected = Watch(kSuspectPatience, [this] { return judge_->suspected(); });
  if (!suspected.ok()) return suspected.status();
  if (*suspected) {
    Say(absl::StrFormat("suspected after %.1f s", *judge_->phases().back().onset_to_verdict_s));
    const absl::StatusOr<bool> confirmed = Watch(kConfirmLimit, [this] { return judge_->confirmed(); });
    if (!confirmed.ok()) return confirmed.status();
    if (*confirmed) {
      Say(absl::StrFormat("confirmed after %.1f s:", *judge_->phases().back().onset_to_confirmed_s));
      fputs(service::VerdictText(*judge_->verdict(), absl::GetCurrentTimeNanos()).c_str(), stdout);
    }
  }
  const absl::StatusOr<bool> watched = Watch(kAfterConfirmed, [] { return false; });
  if (!watched.ok()) return watched.status();
  judge_->EndPhase();
  Say(judge_->phases().back().correct() ? "the right rank, process, state and evidence"
                                        : "NOT RIGHT, see below");
  return absl::OkStatus();
}

absl::Status Demo::PlayResumed() {
  const absl::StatusOr<uint64_t> called = LeastCalled();
  if (!called.ok()) return called.status();
  judge_->BeginPhase(DemoPhaseKind::kResumed, absl::StrCat("SIGCONT to rank ", victim_),
                     "the verdict is cleared, the job goes on, no other verdict", NowNs());
  if (absl::Status fault = launcher_->SignalRank(victim_, SIGCONT); !fault.ok()) return fault;
  Say(absl::StrFormat("rank %d goes on", victim_));
  const absl::StatusOr<bool> cleared = Watch(kClearLimit, [this] { return judge_->cleared(); });
  if (!cleared.ok()) return cleared.status();
  if (*cleared) Say(absl::StrFormat("cleared after %.1f s", *judge_->phases().back().onset_to_cleared_s));
  const absl::StatusOr<bool> watched = Watch(kQuietTime, [] { return false; });
  if (!watched.ok()) return watched.status();
  if (absl::Status fault = ExpectProgress(*called); !fault.ok()) return fault;
  judge_->EndPhase();
  Say(judge_->phases().back().correct() ? "the job goes on, no other verdict" : "NOT RIGHT, see below");
  return absl::OkStatus();
}

absl::Status Demo::Play() {
  for (const auto step : {&Demo::StartJob, &Demo::PlayHealthy, &Demo::PlayStopped, &Demo::PlayResumed}) {
    if (absl::Status fault = (this->*step)(); !fault.ok()) {
      if (judge_ != nullptr && !judge_->phases().empty()) judge_->AddFault(std::string(fault.message()));
      if (launcher_ != nullptr) launcher_->End();
      return fault;
    }
  }
  launcher_->End();
  return absl::OkStatus();
}

}  // namespace c4::cli
