#include "benchmarks/job_trial.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "benchmarks/accepted_verdicts.h"
#include "c4a/cadence.h"
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
    auto [at, is_new] = known_.try_emplace(source + " " + destination);
    if (is_new) {
      c4d::LinkPath path = agents_.physics()->network().Path(source, destination);
      if (!path.empty()) at->second = std::make_shared<const c4d::LinkPath>(std::move(path));
    }
    return at->second;
  }

 private:
  const jobsim::Agents& agents_;
  std::map<std::string, std::shared_ptr<const c4d::LinkPath>> known_;
};

// The master and the job that it looks at.
class Watched {
 public:
  Watched(jobsim::JobPlan plan, int64_t per_host_ns)
      : report_ns_(plan.report_ns), agents_(std::move(plan), kStartNs, kStartUnixNs), paths_(agents_) {
    c4d::HandlerOptions options;
    options.job = "job";
    options.master_epoch = 1;
    options.log_verdicts = false;
    options.report_per_host_ns = per_host_ns;
    handler_ = std::make_unique<c4d::C4dHandler>(options, &store_, &metrics_, &paths_);
  }

  void Step(JobTrial* trial) {
    at_ns_ += report_ns_;
    const c4d::Now now = {kStartNs + at_ns_, kStartUnixNs + at_ns_};
    for (const v1::TelemetryBatch& batch : agents_.Report(at_ns_)) {
      agent::Cadence& cadence = cadences_[{batch.host(), batch.agent_epoch()}];
      if (!cadence.IsDue(batch)) continue;
      const auto taken = handler_->Ingest(batch, now);
      ++trial->batches;
      if (taken.ok()) {
        cadence.Ask(taken->report_interval_ns());
      } else {
        trial->told += std::string(taken.status().message()) + "\n";
      }
    }
    handler_->Tick(now);
  }

  int64_t at_ns() const { return at_ns_; }
  const jobsim::Agents& agents() const { return agents_; }
  c4d::C4dHandler& handler() { return *handler_; }

 private:
  const int64_t report_ns_;
  jobsim::Agents agents_;
  std::map<std::pair<std::string, uint64_t>, agent::Cadence> cadences_;  // by host and life of its agent
  KnownPaths paths_;
  c4d::VerdictStore store_{":memory:"};
  service::Metrics metrics_;
  std::unique_ptr<c4d::C4dHandler> handler_;
  int64_t at_ns_ = 0;
};

void Tell(const v1::Verdict& verdict, JobTrial* trial) {
  const bool confirmed = verdict.state() == v1::VERDICT_STATE_CONFIRMED;
  const int64_t unix_ns = confirmed ? verdict.confirmed_unix_ns() : verdict.suspected_unix_ns();
  char at[32];
  std::snprintf(at, sizeof at, "at %.1f s: ", static_cast<double>(unix_ns - kStartUnixNs) / 1e9);
  trial->told += at + service::VerdictLine(verdict, unix_ns) + "\n";
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

JobTrial RunJobTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed,
                     int64_t per_host_ns) {
  Watched watched(jobsim::PlanOf(shape, fault, seed), per_host_ns);
  JobTrial trial;
  std::unique_ptr<AcceptedVerdicts> accepted;
  std::set<std::string> judged;
  std::set<std::string> suspected;
  int64_t shown_ns = fault.at_ns;
  const bool harmless = jobsim::IsHarmless(fault.kind);
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
      trial.ambiguous = verdict.culprit().kind() == v1::CULPRIT_KIND_AMBIGUOUS;
      trial.after_s = std::max(0.0, after_s);
    }
  });
  int64_t end_ns = kLongestNs;
  while (watched.at_ns() < std::min(end_ns, kLongestNs + fault.at_ns)) {
    if (accepted != nullptr && accepted->stands_still()) {
      shown_ns = std::max(fault.at_ns, watched.agents().physics()->last_event_ns());
      end_ns = shown_ns + static_cast<int64_t>((trial.limit_s + kLateS) * 1e9) + kAfterwardsNs;
    }
    watched.Step(&trial);
    if (accepted != nullptr) continue;
    accepted = std::make_unique<AcceptedVerdicts>(*watched.agents().physics());
    trial.limit_s = accepted->limit_s();
    if (accepted->stands_still()) continue;
    trial.limit_s += static_cast<double>(kShowSteps * jobsim::NominalStepNs(shape)) / 1e9 * fault.factor;
    end_ns = fault.at_ns + static_cast<int64_t>(trial.limit_s * 1e9) + kAfterwardsNs;
    if (harmless) end_ns = fault.at_ns + kHarmlessNs;
  }
  trial.simulated_s = static_cast<double>(watched.at_ns()) / 1e9;
  if (harmless) trial.right = trial.wrong == 0;
  return trial;
}

JobTrial RunHealthyTrial(uint32_t ranks, uint64_t seed, double healthy_s, int64_t report_ns,
                         int64_t per_host_ns) {
  jobsim::Shape shape = jobsim::DrawShape(ranks, seed);
  jobsim::DrawLife(seed, &shape);
  jobsim::JobPlan plan = jobsim::HealthyPlan(shape, static_cast<int64_t>(healthy_s * 1e9), seed);
  plan.report_ns = report_ns;
  Watched watched(std::move(plan), per_host_ns);
  JobTrial trial;
  std::set<std::string> judged;
  watched.handler().Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !judged.insert(verdict.id()).second) return;
    Tell(verdict, &trial);
    ++trial.wrong;
  });
  while (watched.at_ns() < static_cast<int64_t>(healthy_s * 1e9)) watched.Step(&trial);
  trial.simulated_s = static_cast<double>(watched.at_ns()) / 1e9;
  trial.right = trial.wrong == 0;
  return trial;
}

}  // namespace c4::benchmarks
