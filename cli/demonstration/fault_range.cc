#include "cli/demonstration/fault_range.h"

#include <algorithm>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "service/address.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{100};
constexpr absl::Duration kAnswerLimit = absl::Seconds(2);
constexpr double kPatienceS = 6;    // beyond the limit, to say how late it was
constexpr double kHoldS = 1;        // after the verdict was confirmed
constexpr double kHoldSlowS = 4;    // its set of connections settles
constexpr double kQuietHoldS = 12;  // of a fault that nobody may speak of
constexpr double kClearLimitS = 30;
constexpr double kBetweenS = 5;  // rates and rhythm are the usual ones again
constexpr double kGraceS = 3;    // the other ranks hear of a failure by themselves
constexpr int kRestartLimitS = 60;
constexpr int kFlowWindowMs = 300;

bool IsSlow(fabric::Kind kind) {
  return kind == fabric::Kind::kSlowLink || kind == fabric::Kind::kSlowNic || kind == fabric::Kind::kSlowRank;
}

}  // namespace

FaultRange::FaultRange(FaultRangeOptions options, Say say)
    : options_(std::move(options)), say_(std::move(say)) {}

FaultRange::~FaultRange() {
  End();
}

int FaultRange::ranks() const {
  return options_.ranks == 0 && on_fabric() ? fabric::HostCount(*options_.spec) : options_.ranks;
}

double FaultRange::NowS() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

absl::Status FaultRange::Start() {
  LaunchOptions job;
  if (on_fabric()) {
    const absl::StatusOr<fabric::Fabric> made = fabric::Fabric::Up(*options_.spec);
    if (!made.ok()) return made.status();
    fabric_up_ = true;
    job.fabric = options_.spec->name;
    job.paths = options_.network.paths_known;
  }
  job.ranks = ranks();
  job.ranks_per_host = options_.ranks_per_host;
  job.job = options_.job;
  job.restarts = options_.restarts;
  job.tls = options_.tls;
  job.rank_logs = true;
  job.grace_s = kGraceS;
  job.keep_log = !options_.log_dir.empty();
  job.log_dir = options_.log_dir;
  job.command = {"/usr/bin/env"};
  job.command.insert(job.command.end(), options_.environment.begin(), options_.environment.end());
  job.command.insert(job.command.end(), options_.command.begin(), options_.command.end());
  absl::StatusOr<std::unique_ptr<Launcher>> launcher = Launcher::Start(std::move(job), say_);
  if (!launcher.ok()) return launcher.status();
  launcher_ = *std::move(launcher);
  if (launcher_->interrupted()) return absl::CancelledError("interrupted");
  if (!launcher_->monitored()) {
    return absl::FailedPreconditionError(
        "the agents or the master are missing; build everything first (`make`)");
  }
  MasterOptions master;
  master.job = options_.job;
  absl::StatusOr<std::unique_ptr<MasterClient>> client = ConnectToMaster(master);
  if (!client.ok()) return client.status();
  client_ = *std::move(client);
  injector_ = std::make_unique<fabric::Injector>(
      fabric::Injector::Options{.base_dir = "", .job = options_.job, .seed = options_.seed, .plan_path = ""});
  BusyShare();
  return absl::OkStatus();
}

absl::Status FaultRange::Look() {
  absl::StatusOr<v1::ListVerdictsReply> reply = client_->ListVerdicts(/*include_cleared=*/true, kAnswerLimit);
  if (!reply.ok()) return reply.status();
  verdicts_ = *std::move(reply);
  judge_.Observe({verdicts_.verdicts().begin(), verdicts_.verdicts().end()}, NowS());
  return absl::OkStatus();
}

absl::StatusOr<bool> FaultRange::Watch(double seconds, const std::function<bool()>& done) {
  const double until_s = NowS() + seconds;
  while (done == nullptr || !done()) {
    const double left_s = until_s - NowS();
    if (left_s <= 0) return false;
    const bool running =
        launcher_->Poll(std::min(milliseconds(static_cast<int64_t>(left_s * 1000) + 1), kLookEvery));
    if (launcher_->interrupted()) return absl::CancelledError("interrupted");
    if (!running) return absl::AbortedError("the job ended in the middle of it");
    if (absl::Status fault = Look(); !fault.ok()) return fault;
  }
  return true;
}

// Of the processes that run now: those of an incarnation that has ended may still be known.
absl::StatusOr<uint64_t> FaultRange::LeastFinished(int incarnation) {
  if (launcher_->plan().incarnation < incarnation) return 0;
  const absl::StatusOr<v1::GetStatusReply> status = client_->GetStatus(kAnswerLimit);
  if (!status.ok()) return status.status();
  uint64_t least = UINT64_MAX;
  int seen = 0;
  for (const v1::RankStatus& rank : status->ranks()) {
    if (rank.rank() < 0 || static_cast<pid_t>(rank.process().pid()) != launcher_->RankPid(rank.rank()))
      continue;
    ++seen;
    least = std::min<uint64_t>(least, rank.finished());
  }
  return seen == ranks() ? least : 0;
}

absl::Status FaultRange::AwaitAtWork(uint64_t collectives, std::chrono::seconds limit) {
  const int incarnation = launcher_->plan().incarnation;
  absl::Status fault;
  const absl::StatusOr<bool> at_work = Watch(static_cast<double>(limit.count()), [&] {
    const absl::StatusOr<uint64_t> least = LeastFinished(incarnation);
    fault = least.status();
    return !fault.ok() || *least >= collectives;
  });
  if (!at_work.ok()) return at_work.status();
  if (!fault.ok()) return fault;
  return *at_work ? absl::OkStatus() : absl::DeadlineExceededError("not all ranks were seen at work");
}

void FaultRange::NarrowFlows(const fabric::Applied& applied) {
  const absl::StatusOr<fabric::JobView> job = fabric::FindJob("", options_.job);
  if (!job.ok()) return;
  const absl::StatusOr<std::vector<fabric::Flow>> flows =
      fabric::FlowsOf(*options_.spec, *job, kFlowWindowMs, 1);
  if (!flows.ok()) return;
  ExpectedFlows expected = ExpectedFlowsOf(applied, *flows);
  judge_.Narrow(std::move(expected.must), std::move(expected.may), std::move(expected.shared));
}

absl::Status FaultRange::AwaitNextIncarnation() {
  const int next = launcher_->plan().incarnation + 1;
  absl::Status fault;
  const absl::StatusOr<bool> back = Watch(kRestartLimitS, [&] {
    const absl::StatusOr<uint64_t> least = LeastFinished(next);
    fault = least.status();
    return !fault.ok() || *least >= 2;
  });
  if (!back.ok()) return back.status();
  if (!fault.ok()) return fault;
  return *back ? absl::OkStatus() : absl::DeadlineExceededError("the job did not come back to work");
}

absl::Status FaultRange::Play(const fabric::Injection& injection) {
  const int incarnation = launcher_->plan().incarnation;
  const double before_s = NowS();
  absl::StatusOr<fabric::Applied> applied = injector_->Inject(injection);
  if (!applied.ok()) return applied.status();
  const double took_effect_s = NowS() - (applied->done_unix_s - applied->unix_s);
  ExpectedVerdict expected = ExpectedVerdictOf(*applied, options_.network);
  if (!on_fabric()) expected.host = service::HostName();
  // Before more is known, everything on the link is right.
  if (expected.kind == v1::CULPRIT_KIND_LINK)
    expected.shared = ExpectedFlowsOf(*applied, applied->flows).shared;
  // Of a link that the transport goes around nothing takes it any more.
  const bool by_flows =
      expected.kind == v1::CULPRIT_KIND_CONNECTION ||
      (expected.kind == v1::CULPRIT_KIND_LINK && expected.syndrome != v1::SYNDROME_PATH_LOST);
  if (by_flows) expected.may = ExpectedFlowsOf(*applied, applied->flows).may;
  for (const Flow& flow : by_flows ? ExpectedFlowsOf(*applied, applied->flows).must : std::set<Flow>()) {
    expected.may.insert(flow);
  }
  const double limit_s = expected.limit_s;
  const bool quiet = expected.kind == v1::CULPRIT_KIND_UNSPECIFIED;
  say_(service::Concat(fabric::AppliedText(*applied)));
  judge_.Injected(std::move(expected), std::max(before_s, took_effect_s));
  if (by_flows) NarrowFlows(*applied);

  const absl::StatusOr<bool> confirmed =
      Watch(quiet ? kQuietHoldS : limit_s + kPatienceS, [this] { return judge_.confirmed(); });
  if (!confirmed.ok()) return confirmed.status();
  if (by_flows && injection.kind == fabric::Kind::kCut) NarrowFlows(*applied);
  if (*confirmed) {
    say_(absl::StrFormat("confirmed after %.1f s", *judge_.judged().back().confirmed_after_s));
    const absl::StatusOr<bool> held = Watch(IsSlow(injection.kind) ? kHoldSlowS : kHoldS);
    if (!held.ok()) return held.status();
  }
  if (by_flows && injection.kind != fabric::Kind::kCut) NarrowFlows(*applied);
  judge_.Healed(NowS());
  if (absl::Status fault = injector_->Heal(applied->id); !fault.ok() && !fabric::EndsTheJob(injection.kind)) {
    return fault;
  }
  if (fabric::EndsTheJob(injection.kind)) {
    // The job may be through with its restart already.
    if (launcher_->plan().incarnation == incarnation) {
      if (absl::Status fault = AwaitNextIncarnation(); !fault.ok()) return fault;
    } else if (absl::Status fault = AwaitAtWork(2, std::chrono::seconds(kRestartLimitS)); !fault.ok()) {
      return fault;
    }
    say_("the job is at work again, as its next incarnation");
    return absl::OkStatus();
  }
  if (*confirmed) {
    const absl::StatusOr<bool> cleared = Watch(kClearLimitS, [this] { return judge_.cleared(); });
    if (!cleared.ok()) return cleared.status();
    if (*cleared)
      say_(absl::StrFormat("healed; cleared after %.1f s", *judge_.judged().back().cleared_after_s));
  }
  const absl::StatusOr<bool> rested = Watch(kBetweenS);
  return rested.status();
}

void FaultRange::End() {
  if (injector_ != nullptr) (void)injector_->HealAll();
  injector_.reset();
  client_.reset();
  if (launcher_ != nullptr) launcher_->End();
  if (std::exchange(fabric_up_, false)) (void)fabric::Fabric::Down(options_.spec->name);
}

}  // namespace c4::cli
