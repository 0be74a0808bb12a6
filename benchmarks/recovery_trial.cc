#include "benchmarks/recovery_trial.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "service/status.h"

namespace c4::benchmarks {
namespace {

constexpr double kStartLimitS = 60;
constexpr double kRecoveryLimitS = 60;
constexpr double kBetweenS = 1;
constexpr double kGoesAroundS = 12;  // a fault after which the job need not be started again

// No limit of an hour, and a person gives nodes back; the pool is four of twelve.
constexpr char kRules[] = R"({"mode": "automatic",
 "policies": {"mismatch": {"act": "restart"}},
 "limits": {"max_share": 0.25, "isolations_per_hour": 10000, "restarts_per_hour": 10000, "rounds": 20},
 "times": {"immunity_s": 0, "running_timeout_s": 30}})";

double Seconds(int64_t unix_ns) {
  return static_cast<double>(unix_ns) / 1e9;
}

class Player {
 public:
  Player(bool with_c4d, unsigned seed, ElasticRange* range, ElasticRange::Say say)
      : with_c4d_(with_c4d), range_(range), say_(std::move(say)), random_(seed) {}

  absl::StatusOr<PlayedFault> Play(const PlannedFault& planned) {
    PlayedFault played;
    played.planned = planned;
    C4_RETURN_IF_NOT_OK(AwaitAtWork(range_));
    const absl::StatusOr<bool> rest = range_->Watch(kBetweenS);
    if (!rest.ok()) return rest.status();
    const bool of_a_link = planned.kind == fabric::Kind::kCut && !planned.of_a_host;
    fabric::Injection injection;
    injection.kind = planned.kind;
    const int rank = static_cast<int>(random_() % 8);
    if (planned.kind == fabric::Kind::kNodeLoss || planned.of_a_host) {
      injection.target = range_->HostOfRank(rank);
    } else if (!of_a_link) {
      injection.target = absl::StrCat("rank", rank);
    }
    const int begun = range_->begun();
    const uint64_t incidents = with_c4d_ ? NewestIncident() : 0;
    range_->ForgetGap();
    const absl::StatusOr<fabric::Applied> applied = range_->Inject(injection);
    if (!applied.ok()) return applied.status();
    played.name = absl::StrCat(fabric::KindName(planned.kind), " ", applied->injection.target);
    const auto goes_on = [&] { return range_->begun() > begun && !range_->since_begun().empty(); };
    const double limit_s = of_a_link ? kGoesAroundS : with_c4d_ ? kRecoveryLimitS : kHangWatchS;
    const absl::StatusOr<bool> again = range_->Watch(limit_s, goes_on);
    if (!again.ok()) return again.status();
    played.cost.interrupted = *again || !of_a_link;
    if (with_c4d_ && *again) {
      C4_RETURN_IF_NOT_OK(CostWith(applied->unix_s, incidents, &played));
    } else if (with_c4d_ && !of_a_link) {
      C4_RETURN_IF_NOT_OK(MissedWith(begun, &played));
    } else if (!with_c4d_ && (*again || !of_a_link)) {
      C4_RETURN_IF_NOT_OK(CostWithout(applied->unix_s, *again, begun, &played));
    }
    played.standstill_s = range_->longest_gap_s();
    C4_RETURN_IF_NOT_OK(range_->Heal());
    if (with_c4d_) C4_RETURN_IF_NOT_OK(GiveBack(range_));
    return played;
  }

 private:
  uint64_t NewestIncident() const {
    const absl::StatusOr<v1::GetRecoveryReply> reply = range_->Recovery();
    return reply.ok() && reply->state().incidents_size() > 0 ? reply->state().incidents().rbegin()->id() : 0;
  }

  absl::Status CostWith(double fault_s, uint64_t incidents, PlayedFault* played) {
    const double iteration_s = range_->since_begun().front().unix_s;
    absl::Status fault;
    const absl::StatusOr<bool> quiet = range_->Watch(kStartLimitS, [&] {
      const absl::StatusOr<bool> is_quiet = IsQuiet(*range_);
      fault = is_quiet.status();
      return !fault.ok() || *is_quiet;
    });
    if (!quiet.ok()) return quiet.status();
    if (!fault.ok()) return fault;
    const absl::StatusOr<v1::GetRecoveryReply> reply = range_->Recovery();
    if (!reply.ok()) return reply.status();
    played->isolated = NodesOut(reply->state());
    for (const v1::RecoveryIncident& incident : reply->state().incidents()) {
      if (incident.id() <= incidents || incident.restarted_unix_ns() == 0) continue;
      const double confirmed_s = Seconds(incident.confirmed_unix_ns());
      const double isolated_s = Seconds(std::max(incident.isolated_unix_ns(), incident.admitted_unix_ns()));
      played->cost.detection_s = std::max(0.0, confirmed_s - fault_s);
      played->cost.isolation_s = std::max(0.0, isolated_s - confirmed_s);
      played->cost.initialisation_s = std::max(0.0, iteration_s - isolated_s);
      played->verdict_to_iteration_s = iteration_s - confirmed_s;
      if (incident.checkpoint_unix_ns() != 0) {
        played->lost_work_s = std::max(0.0, fault_s - Seconds(incident.checkpoint_unix_ns()));
      }
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("after ", played->name,
                                            " the job was started again, and no incident "
                                            "tells of it"));
  }

  // No verdict has come of it. Mended, it goes on, or a person ends it, which C4D then takes for a crash.
  absl::Status MissedWith(int begun, PlayedFault* played) {
    played->cost.hung = true;
    C4_RETURN_IF_NOT_OK(range_->Heal());
    const double healed_s = UnixNowS();
    const auto goes_on = [&] {
      return (range_->begun() > begun && !range_->since_begun().empty()) ||
             range_->last_iteration_s() > healed_s;
    };
    absl::StatusOr<bool> again = range_->Watch(kHangWatchS, goes_on);
    if (again.ok() && !*again) {
      C4_RETURN_IF_NOT_OK(range_->KillRanks());
      again = range_->Watch(kRecoveryLimitS, goes_on);
    }
    if (!again.ok()) return again.status();
    if (!*again) return absl::DeadlineExceededError(absl::StrCat("after ", played->name, " nothing helps"));
    played->cost.initialisation_s = range_->last_iteration_s() - healed_s;
    return absl::OkStatus();
  }

  // Nobody says who was to blame: it goes on where it was, once that is repaired.
  absl::Status CostWithout(double fault_s, bool by_itself, int begun, PlayedFault* played) {
    played->cost.interrupted = true;
    played->cost.hung = !by_itself;
    if (by_itself) {
      played->cost.detection_s = std::max(0.0, range_->restarted_s() - fault_s);
    } else {
      C4_RETURN_IF_NOT_OK(range_->Heal());
      range_->ForgetGap();
      C4_RETURN_IF_NOT_OK(range_->KillRanks());
      const absl::StatusOr<bool> again = range_->Watch(
          kStartLimitS, [&] { return range_->begun() > begun && !range_->since_begun().empty(); });
      if (!again.ok()) return again.status();
      if (!*again) return absl::DeadlineExceededError("the job did not begin again");
    }
    played->cost.initialisation_s =
        std::max(0.0, range_->since_begun().front().unix_s - range_->restarted_s());
    return absl::OkStatus();
  }

  const bool with_c4d_;
  ElasticRange* const range_;
  const ElasticRange::Say say_;
  std::mt19937 random_;
};

}  // namespace

TrialDir::TrialDir() : path_("/dev/shm/c4-recovery-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) perror("recovery_table3: /dev/shm");
  std::filesystem::create_directory(checkpoints());
}

TrialDir::~TrialDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ElasticRangeOptions TrialOptions(const TrialDir& directory, bool with_c4d, unsigned seed,
                                 const TrainerTerms& terms) {
  ElasticRangeOptions options;
  options.with_c4d = with_c4d;
  options.log_dir = terms.log_dir;
  options.seed = seed;
  options.spec.name = absl::StrCat("rec", getpid() % 1000);
  options.spec.leaves = 2;
  options.spec.spines = 2;
  options.spec.hosts_per_leaf = 6;
  options.job = absl::StrCat("recovery-", getpid());
  options.checkpoint = directory.checkpoints() + "/LATEST";
  options.recovery_file = directory.path() + "/rules.json";
  std::ofstream(options.recovery_file) << kRules;
  const absl::StatusOr<std::string> folder = cli::OwnFolder();
  options.command = {folder.value_or(".") + "/hybrid_trainer",
                     "--tensor",
                     "1",
                     "--pipeline",
                     "2",
                     "--width",
                     "128",
                     "--hidden",
                     "64",
                     "--batch",
                     "4",
                     "--report-every",
                     "1",
                     "--checkpoint-every",
                     absl::StrCat(kCheckpointEvery),
                     "--resume",
                     directory.checkpoints(),
                     "--device-ms",
                     absl::StrCat(terms.device_ms),
                     "--iterations",
                     absl::StrCat(terms.iterations)};
  return options;
}

absl::Status AwaitAtWork(ElasticRange* range) {
  const absl::StatusOr<bool> at_work =
      range->Watch(kStartLimitS, [range] { return range->since_begun().size() > kCheckpointEvery + 2; });
  if (!at_work.ok()) return at_work.status();
  return *at_work ? absl::OkStatus() : absl::DeadlineExceededError("the trainer does no iterations");
}

absl::StatusOr<bool> IsQuiet(const ElasticRange& range) {
  const absl::StatusOr<v1::GetRecoveryReply> reply = range.Recovery();
  if (!reply.ok()) return reply.status();
  return std::all_of(
      reply->state().incidents().begin(), reply->state().incidents().end(),
      [](const v1::RecoveryIncident& incident) { return incident.phase() >= v1::RECOVERY_PHASE_RECOVERED; });
}

std::vector<std::string> NodesOut(const v1::RecoveryState& state) {
  std::vector<std::string> out;
  for (const v1::RecoveryNode& node : state.nodes()) {
    if (node.state() >= v1::RECOVERY_NODE_STATE_ISOLATING &&
        node.state() <= v1::RECOVERY_NODE_STATE_RETURNING) {
      out.push_back(node.name());
    }
  }
  return out;
}

absl::Status GiveBack(ElasticRange* range) {
  std::set<std::string> released;
  absl::Status fault;
  const absl::StatusOr<bool> free = range->Watch(kStartLimitS, [&] {
    const absl::StatusOr<v1::GetRecoveryReply> now = range->Recovery();
    fault = now.status();
    if (!fault.ok()) return true;
    const std::vector<std::string> out = NodesOut(now->state());
    // Also one that goes out meanwhile, once that is dealt with: who gives it back before ends what is under
    // way.
    const absl::StatusOr<bool> quiet = IsQuiet(*range);
    if (fault = quiet.status(); !fault.ok()) return true;
    for (const std::string& host : out) {
      if (fault.ok() && *quiet && released.insert(host).second) fault = range->Release(host);
    }
    return !fault.ok() || out.empty();
  });
  if (!free.ok()) return free.status();
  if (!fault.ok()) return fault;
  return *free ? absl::OkStatus() : absl::DeadlineExceededError("nodes are not given back");
}

absl::StatusOr<std::vector<PlayedFault>> PlayFaults(const std::vector<PlannedFault>& plan, bool with_c4d,
                                                    unsigned seed, const TrainerTerms& terms,
                                                    const ElasticRange::Say& say) {
  const TrialDir directory;
  ElasticRange range(TrialOptions(directory, with_c4d, seed, terms), say);
  C4_RETURN_IF_NOT_OK(range.Start());
  Player player(with_c4d, seed, &range, say);
  std::vector<PlayedFault> all;
  for (const PlannedFault& planned : plan) {
    absl::StatusOr<PlayedFault> played = player.Play(planned);
    if (!played.ok()) return played.status();
    const FaultCost& cost = played->cost;
    say(absl::StrFormat("%d %s (%s): %s", all.size() + 1, played->name, planned.root_cause,
                        !cost.interrupted ? "went on"
                        : cost.hung       ? absl::StrFormat("hung, then %.1f s", cost.initialisation_s)
                                          : absl::StrFormat("%.1f + %.1f + %.1f s", cost.detection_s,
                                                            cost.isolation_s, cost.initialisation_s)));
    all.push_back(*std::move(played));
  }
  return all;
}

}  // namespace c4::benchmarks
