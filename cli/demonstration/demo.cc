#include "cli/demonstration/demo.h"

#include <cstdio>
#include <iterator>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "cli/base/process.h"
#include "cli/base/processors.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

constexpr std::chrono::seconds kStartLimit{60};
constexpr double kHealthyS = 12;  // long enough for the job's usual pace to be learnt
constexpr double kWarmUpS = 8;    // of an incarnation, before it is broken again
constexpr double kBusyLimit = 0.70;
constexpr double kRateMbps = 200;
constexpr double kQuotaPercent = 96;  // of one core, for all hosts together: half of two cores
constexpr int kLoopbackRanks = 8;

// What ends the job comes last.
constexpr fabric::Kind kOnFabric[] = {
    fabric::Kind::kSlowLink, fabric::Kind::kSlowNic,  fabric::Kind::kSlowRank, fabric::Kind::kStop,
    fabric::Kind::kCut,      fabric::Kind::kMismatch, fabric::Kind::kKill};
constexpr fabric::Kind kOnLoopback[] = {fabric::Kind::kStop, fabric::Kind::kMismatch, fabric::Kind::kKill};

const Demo::Layout kOneEach = {"4x4x4", {}, 0};
const Demo::Layout kFewer = {"2x4x4", {}, 0};
// As many agents as fit with 24 ranks on two cores: on each leaf a node of eight and four of one.
const Demo::Layout kMixed = {"2x4x5", {8, 1, 1, 1, 1, 8, 1}, 24};

// So that each rank has as much of a processor as any other, however many share its host.
std::vector<double> QuotaShares(const Demo::Layout& layout) {
  return {layout.ranks_per_host.begin(), layout.ranks_per_host.end()};
}

}  // namespace

void Demo::Say(const std::string& text) const {
  printf("[%5.1f s] %s\n", range_ == nullptr ? 0.0 : range_->NowS(), text.c_str());
  fflush(stdout);
}

absl::Status Demo::Start(const Layout* layout) {
  const absl::StatusOr<std::string> folder = OwnFolder();
  if (!folder.ok()) return folder.status();
  FaultRangeOptions options;
  if (layout != nullptr) {
    fabric::FabricSpec spec;
    spec.name = service::Concat("demo", getpid() % 1000);
    if (absl::Status fault = fabric::ParseSize(layout->size, &spec); !fault.ok()) return fault;
    spec.rate_mbps = kRateMbps;
    spec.quota_percent = kQuotaPercent / (layout->ranks > 0 ? layout->ranks : fabric::HostCount(spec));
    spec.quota_period_us = 10000;
    spec.quota_shares = QuotaShares(*layout);
    options.spec = spec;
    options.network = {.paths_known = true, .fail_over = true};
  }
  options.ranks = layout == nullptr ? kLoopbackRanks : layout->ranks;
  if (layout != nullptr) options.ranks_per_host = layout->ranks_per_host;
  options.command = {*folder + "/hybrid_trainer", "--seconds", "100000"};
  // Chunks and windows in proportion to links of 200 Mbit/s.
  options.environment = {"C4_CHUNK_BYTES=32768", "C4_WINDOW_BYTES=131072"};
  options.job = service::Concat("demo-", getpid());
  options.seed = options_.seed;
  options.restarts = 8;
  options.tls = options_.tls;
  options.log_dir = options_.log_dir;
  range_.reset();
  range_ = std::make_unique<FaultRange>(std::move(options), [this](const std::string& text) { Say(text); });
  size_ = layout == nullptr ? "" : layout->size;
  if (layout != nullptr)
    Say(service::Concat("building a fabric of ", size_, " and starting its ", range_->ranks(), " ranks"));
  return range_->Start();
}

std::string BusyNote(double others_share) {
  constexpr double kNoticed = 0.25;
  if (others_share < kNoticed) return "";
  return absl::StrFormat(
      "other programs keep %.0f %% of this machine's processors busy. So expect it coarser: verdicts come "
      "seconds later, a link may be named together with others that the same connections take, and where the "
      "processors are more than %.0f %% busy with the job at work, it has 8 ranks in the place of 16",
      100 * others_share, 100 * kBusyLimit);
}

absl::Status Demo::StartAnywhere() {
  Processors processors;
  processors.Busy();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  if (const std::string note = BusyNote(processors.Busy()); !note.empty()) Say(note);
  if (options_.loopback) return Start(nullptr);
  absl::Status started = Start(options_.mixed ? &kMixed : &kOneEach);
  if (absl::IsPermissionDenied(started) || absl::IsFailedPrecondition(started)) {
    Say(service::Concat("no fabric here: ", started.message(),
                        "; over loopback instead, without faults of the network"));
    started = Start(nullptr);
  }
  return started;
}

absl::Status Demo::PlayHealthy() {
  if (absl::Status fault = range_->AwaitAtWork(2, kStartLimit); !fault.ok()) return fault;
  Say(absl::StrFormat("%d ranks at work; %.0f s in which nothing is wrong", range_->ranks(), kHealthyS));
  range_->BusyShare();
  const absl::StatusOr<bool> watched = range_->Watch(kHealthyS);
  if (!watched.ok()) return watched.status();
  busy_share_ = range_->BusyShare();
  healthy_right_ = range_->judge().false_alarms().empty();
  for (const v1::Verdict& verdict : range_->verdicts().verdicts()) {
    if (verdict.confirmed_unix_ns() != 0) healthy_verdicts_.push_back(service::VerdictJson(verdict));
  }
  Say(absl::StrFormat("%s; processors %.0f %% busy",
                      healthy_right_ ? "no verdict, as it should be" : "NOT RIGHT", 100 * busy_share_));
  return absl::OkStatus();
}

absl::Status Demo::PlayFault(fabric::Kind kind) {
  fabric::Injection injection;
  injection.kind = kind;
  if (absl::Status fault = range_->Play(injection); !fault.ok()) return fault;
  const FaultJudgement& judged = range_->judge().judged().back();
  if (judged.verdict_id.empty()) {
    Say("NOT RIGHT, see below");
  } else {
    fputs(service::VerdictText(judged.verdict, judged.verdict.confirmed_unix_ns()).c_str(), stdout);
  }
  if (!fabric::EndsTheJob(kind)) return absl::OkStatus();
  return range_->Watch(kWarmUpS).status();
}

absl::Status Demo::Play() {
  if (absl::Status fault = StartAnywhere(); !fault.ok()) return fault;
  if (absl::Status fault = PlayHealthy(); !fault.ok()) return fault;
  if (range_->on_fabric() && busy_share_ > kBusyLimit) {
    // Slowing one of several ranks on busy cores speeds the others up: no fair ground for a judgement.
    Say(absl::StrFormat("more than %.0f %%: this machine is too busy for %d ranks, once more with 8",
                        100 * kBusyLimit, range_->ranks()));
    if (absl::Status fault = Start(&kFewer); !fault.ok()) return fault;
    healthy_verdicts_.clear();
    if (absl::Status fault = PlayHealthy(); !fault.ok()) return fault;
  }
  const std::vector<fabric::Kind> kinds =
      range_->on_fabric() ? std::vector<fabric::Kind>(std::begin(kOnFabric), std::end(kOnFabric))
                          : std::vector<fabric::Kind>(std::begin(kOnLoopback), std::end(kOnLoopback));
  for (const fabric::Kind kind : kinds) {
    if (absl::Status fault = PlayFault(kind); !fault.ok()) return fault;
  }
  range_->judge().End(range_->NowS());
  range_->End();
  return absl::OkStatus();
}

bool Demo::AllRight() const {
  const FaultRange& range = *range_;
  const size_t faults = range.on_fabric() ? std::size(kOnFabric) : std::size(kOnLoopback);
  return healthy_right_ && range.judge().judged().size() == faults && range.judge().AllRight();
}

}  // namespace c4::cli
