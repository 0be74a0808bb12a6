#include "benchmarks/job_trial.h"

#include <algorithm>
#include <memory>
#include <set>
#include <unordered_map>

#include "benchmarks/accepted_verdicts.h"
#include "benchmarks/job_cadence.h"
#include "c4a/batch_changes.h"
#include "c4d_master/c4d_handler.h"
#include "c4d_master/path_source.h"
#include "fabric/jobsim/agents.h"
#include "fabric/jobsim/draw.h"
#include "fabric/jobsim/program.h"
#include "service/verdict_json.h"

namespace c4::benchmarks {
namespace {

using jobsim::FaultKind;
using jobsim::kSecondNs;

constexpr int64_t kStartNs = 1'000'000'000'000;
constexpr int64_t kStartUnixNs = 1'700'000'000'000'000'000;
constexpr double kLateS = 0.5;  // reports and looks
constexpr int64_t kAfterwardsNs = 3 * kSecondNs;
constexpr int64_t kHarmlessNs = 100 * kSecondNs;  // for which a job is watched that nothing is wrong with
constexpr int64_t kLongestNs = 1500 * kSecondNs;
constexpr int64_t kWholeEveryNs = 30 * kSecondNs;  // as c4a/uplink.cc has it
// What is usual is learnt from so many steps, and slowness shows in so many.
constexpr int64_t kLearnSteps = 30;
constexpr int64_t kShowSteps = 8;

// C4P as the master asks it: it knows the ways of all queue pairs.
class KnownPaths final : public c4d::PathSource {
 public:
  explicit KnownPaths(const jobsim::Agents& agents) : agents_(agents) {}
  std::shared_ptr<const c4d::LinkPath> Find(const std::string& source,
                                            const std::string& destination) override {
    if (agents_.physics() == nullptr) return nullptr;
    const jobsim::Network& network = agents_.physics()->network();
    const std::optional<jobsim::EndpointKey> from = network.KeyOf(source);
    const std::optional<jobsim::EndpointKey> to = network.KeyOf(destination);
    if (!from.has_value() || !to.has_value()) return nullptr;
    auto [at, is_new] = known_[*from].try_emplace(*to);
    if (is_new) {
      c4d::LinkPath path = network.Path(source, destination);
      if (!path.empty()) at->second = std::make_shared<const c4d::LinkPath>(std::move(path));
    }
    return at->second;
  }

 private:
  using Paths = std::unordered_map<jobsim::EndpointKey, std::shared_ptr<const c4d::LinkPath>>;

  const jobsim::Agents& agents_;
  std::unordered_map<jobsim::EndpointKey, Paths> known_;  // by source, then destination
};

// The master and the job that it looks at. Messages go over as they are in memory: what serialising and
// weighing them does is tested elsewhere.
class Watched {
 public:
  explicit Watched(jobsim::JobPlan plan) : agents_(std::move(plan), kStartNs, kStartUnixNs), paths_(agents_) {
    c4d::HandlerOptions options;
    options.job = "job";
    options.master_epoch = 1;
    options.log_verdicts = false;
    handler_ = std::make_unique<c4d::C4dHandler>(options, &store_, &metrics_, &paths_);
  }

  void Step(int64_t wait_ns, JobTrial* trial) {
    const int64_t at_ns = agents_.at_ns() + wait_ns;
    watched_ns_ += wait_ns;
    const c4d::Now now = {kStartNs + at_ns, kStartUnixNs + at_ns};
    for (const jobsim::Told& told : agents_.Report(at_ns)) {
      // As an agent's uplink does it.
      Base& base = bases_[told.batch->host()];
      std::optional<v1::TelemetryBatch> changes;
      if (told.before != nullptr && base.sequence == told.before->sequence() &&
          told.batch->monotonic_ns() - base.whole_ns < kWholeEveryNs) {
        changes = agent::ChangesSince(*told.before, told.batch);
      }
      if (!changes.has_value()) base.whole_ns = told.batch->monotonic_ns();
      const auto taken = handler_->Ingest(changes.has_value() ? *changes : *told.batch, now);
      if (!taken.ok()) trial->told += std::string(taken.status().message()) + "\n";
      base.sequence = taken.ok() ? taken->base() : 0;
    }
    handler_->Tick(now);
  }

  int64_t at_ns() const { return agents_.at_ns(); }
  double watched_s() const { return static_cast<double>(watched_ns_) / 1e9; }
  jobsim::Agents& agents() { return agents_; }
  const jobsim::Physics& physics() const { return *agents_.physics(); }
  c4d::C4dHandler& handler() { return *handler_; }

 private:
  jobsim::Agents agents_;
  KnownPaths paths_;
  c4d::VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  std::unique_ptr<c4d::C4dHandler> handler_;
  struct Base {
    uint64_t sequence = 0;  // that the master asked to be told changes of
    int64_t whole_ns = 0;   // when all was told last
  };
  std::unordered_map<std::string, Base> bases_;  // by host
  int64_t watched_ns_ = 0;
};

void Tell(const v1::Verdict& verdict, JobTrial* trial) {
  const bool confirmed = verdict.state() == v1::VERDICT_STATE_CONFIRMED;
  const int64_t unix_ns = confirmed ? verdict.confirmed_unix_ns() : verdict.suspected_unix_ns();
  char at[32];
  std::snprintf(at, sizeof at, "at %.1f s: ", static_cast<double>(unix_ns - kStartUnixNs) / 1e9);
  trial->told += at + service::VerdictLine(verdict, unix_ns) +
                 (confirmed ? " by " + verdict.confirmed_by() : std::string()) + "\n";
  for (const v1::Evidence& item : verdict.evidence()) trial->told += "    " + item.text() + "\n";
}

bool IsFirstSuspicion(const v1::Verdict& verdict, std::set<std::string>* suspected) {
  return verdict.state() == v1::VERDICT_STATE_SUSPECTED && suspected->insert(verdict.id()).second;
}

}  // namespace

void DrawTrial(uint32_t ranks, FaultKind kind, uint64_t seed, jobsim::Shape* shape, jobsim::Fault* fault) {
  for (uint64_t again = 0;; ++again) {
    *shape = jobsim::DrawShape(ranks, seed + again * 1'000'003);
    const int64_t learn_ns = shape->start_skew_ns + shape->first_step_ns +
                             std::max(60 * kSecondNs, kLearnSteps * jobsim::NominalStepNs(*shape));
    *fault = jobsim::DrawFault(*shape, kind, learn_ns, seed + again * 1'000'003);
    if (again == 100 || jobsim::Matters(*shape, *fault)) return;
  }
}

JobTrial RunJobTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed) {
  Watched watched(jobsim::PlanOf(shape, fault, seed));
  JobTrial trial;
  const bool harmless = jobsim::IsHarmless(fault.kind);
  int64_t shown_ns = fault.at_ns;
  std::set<std::string> judged;
  std::set<std::string> suspected;
  std::unique_ptr<AcceptedVerdicts> accepted;
  watched.handler().Subscribe([&](const v1::Verdict& verdict) {
    if (IsFirstSuspicion(verdict, &suspected)) Tell(verdict, &trial);
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !judged.insert(verdict.id()).second) return;
    Tell(verdict, &trial);
    const double since_s =
        static_cast<double>(verdict.confirmed_unix_ns() - kStartUnixNs - fault.at_ns) / 1e9;
    if (harmless || since_s < 0 || !accepted->IsRight(verdict)) {
      ++trial.wrong;
      return;
    }
    const double after_s = static_cast<double>(verdict.confirmed_unix_ns() - kStartUnixNs - shown_ns) / 1e9;
    if (accepted->IsComplete(verdict) && !trial.right && after_s <= trial.limit_s + kLateS) {
      trial.right = true;
      // A connection with links is one of several, too: of them one is to blame.
      const v1::Culprit& culprit = verdict.culprit();
      trial.ambiguous = culprit.kind() == v1::CULPRIT_KIND_AMBIGUOUS ||
                        (culprit.kind() == v1::CULPRIT_KIND_CONNECTION && culprit.links_size() > 0);
      trial.after_s = std::max(0.0, after_s);
    }
  });
  watched.Step(kCoarseNs, &trial);
  accepted = std::make_unique<AcceptedVerdicts>(watched.physics());
  trial.limit_s = accepted->limit_s();
  if (!accepted->stands_still()) {
    trial.limit_s += static_cast<double>(kShowSteps * jobsim::SlowedStepNs(shape, fault)) / 1e9;
  }
  const FaultCadence cadence{.ready_ns = watched.physics().ready_ns(),
                             .fault_ns = fault.at_ns,
                             .harmless = harmless,
                             .stands_still = accepted->stands_still(),
                             .limit_s = trial.limit_s};
  for (int64_t end_ns = 0;;) {
    if (accepted->stands_still()) shown_ns = std::max(fault.at_ns, watched.physics().last_event_ns());
    end_ns = shown_ns + static_cast<int64_t>((trial.limit_s + kLateS) * 1e9) + kAfterwardsNs;
    if (harmless) end_ns = fault.at_ns + kHarmlessNs;
    if (watched.at_ns() >= std::min(end_ns, kLongestNs + fault.at_ns)) break;
    watched.Step(cadence.Next(watched.at_ns(), shown_ns), &trial);
  }
  trial.simulated_s = trial.judged_s = watched.watched_s();
  if (harmless) trial.right = trial.wrong == 0;
  return trial;
}

JobTrial RunHealthyTrial(uint32_t ranks, uint64_t seed, const HealthyOptions& options) {
  jobsim::Shape shape = jobsim::DrawShape(ranks, seed);
  jobsim::DrawLife(seed, options.busy, &shape);
  const auto lasts_ns = static_cast<int64_t>(options.lasts_s * 1e9);
  jobsim::JobPlan plan = jobsim::HealthyPlan(shape, options.busy, lasts_ns, seed);
  HealthyCadence cadence(plan, lasts_ns);
  Watched watched(std::move(plan));
  JobTrial trial;
  std::set<std::string> judged;
  watched.handler().Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !judged.insert(verdict.id()).second) return;
    Tell(verdict, &trial);
    ++trial.wrong;
  });
  while (watched.at_ns() < lasts_ns) {
    const jobsim::Physics* const physics = watched.agents().physics();
    HealthyCadence::Step step{.wait_ns = kCoarseNs};
    if (physics != nullptr) {
      step = cadence.Next(watched.at_ns(), watched.agents().rhythm(), watched.agents().last_event_ns());
    }
    if (step.mark) watched.agents().Mark();
    if (step.skips > 0 && options.skip) watched.agents().Skip(step.skips);
    watched.Step(step.wait_ns, &trial);
  }
  trial.simulated_s = static_cast<double>(watched.at_ns()) / 1e9;
  trial.judged_s = watched.watched_s();
  trial.right = trial.wrong == 0;
  return trial;
}

}  // namespace c4::benchmarks
