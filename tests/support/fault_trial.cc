#include "tests/support/fault_trial.h"

#include <algorithm>
#include <random>
#include <set>

#include "c4d_master/c4d_handler.h"
#include "service/verdict_json.h"

namespace c4::simulation {
namespace {

struct Expected {
  v1::Syndrome syndrome = v1::SYNDROME_UNSPECIFIED;  // none is right
  double within_s = 0;
};

Expected ExpectedOf(Fault fault, const TrainingShape& shape, bool paths_known) {
  switch (fault) {
    case Fault::kStop:
      return {v1::SYNDROME_NON_COMMUNICATION_HANG, 5};
    case Fault::kKill:
      return {v1::SYNDROME_CRASH, 5};
    case Fault::kMismatch:
      return {v1::SYNDROME_MISMATCH, 5};
    case Fault::kCutLink:
      // Without paths a dead link that the transport goes around is not told from congestion.
      if (shape.fail_over) return {paths_known ? v1::SYNDROME_PATH_LOST : v1::SYNDROME_UNSPECIFIED, 5};
      return {v1::SYNDROME_COMMUNICATION_HANG, 5};
    case Fault::kCutNic:
      return {v1::SYNDROME_COMMUNICATION_HANG, 5};
    case Fault::kSlowLink:
    case Fault::kSlowNic:
      return {v1::SYNDROME_COMMUNICATION_SLOW, 10};
    case Fault::kSlowRank:
      return {v1::SYNDROME_NON_COMMUNICATION_SLOW, shape.from_start ? 45.0 : 10.0};
    case Fault::kLostNode:
      return {v1::SYNDROME_LOST_NODE, 10};
    default:
      return {};
  }
}

using PathKey = std::tuple<int32_t, int32_t, uint64_t, uint32_t>;

// The connections that are named are the right ones: none off the link, none missing.
bool RightConnections(Fault fault, const v1::Culprit& culprit, const TrainingSim& sim) {
  if (culprit.kind() != v1::CULPRIT_KIND_CONNECTION) return false;
  std::set<PathKey> named;
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    named.insert({ref.from_rank(), ref.to_rank(), ref.communicator_id(), ref.index()});
  }
  for (const TrainingSim::Path& path : sim.paths()) {
    const bool is_named = named.count({static_cast<int32_t>(path.from), static_cast<int32_t>(path.to),
                                       path.communicator, path.index}) != 0;
    const bool must = fault == Fault::kCutLink ? path.stuck : path.over_target;
    if (must && !is_named) return false;
    if (is_named && !path.over_target && !path.acks_over_target) return false;
  }
  return true;
}

// That link, or "ambiguous" with it among the candidates, where all that are bad take each of these.
bool RightLink(const v1::Culprit& culprit, const TrainingSim& sim) {
  if (culprit.kind() == v1::CULPRIT_KIND_LINK) return culprit.cable() == sim.target_cable();
  if (culprit.kind() != v1::CULPRIT_KIND_AMBIGUOUS) return false;
  std::set<std::string> candidates;
  for (const std::string& link : culprit.links()) candidates.insert(c4d::CableOf(link));
  if (candidates.count(sim.target_cable()) == 0) return false;
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    std::set<std::string> cables;
    for (const bool data : {true, false}) {
      for (const std::string& link :
           sim.LinksOf(data ? ref.local() : ref.remote(), data ? ref.remote() : ref.local())) {
        cables.insert(c4d::CableOf(link));
      }
    }
    if (!std::includes(cables.begin(), cables.end(), candidates.begin(), candidates.end())) return false;
  }
  return true;
}

class SimulatedPaths final : public c4d::PathSource {
 public:
  explicit SimulatedPaths(const TrainingSim* sim) : sim_(sim) {}
  std::shared_ptr<const c4d::LinkPath> Find(const std::string& source,
                                            const std::string& destination) override {
    c4d::LinkPath links = sim_->LinksOf(source, destination);
    return links.empty() ? nullptr : std::make_shared<const c4d::LinkPath>(std::move(links));
  }

 private:
  const TrainingSim* const sim_;
};

bool IsRight(Fault fault, const Expected& expected, bool paths_known, uint32_t target,
             const v1::Verdict& verdict, const TrainingSim& sim) {
  if (verdict.syndrome() != expected.syndrome) return false;
  const v1::Culprit& culprit = verdict.culprit();
  switch (fault) {
    case Fault::kCutLink:
    case Fault::kSlowLink:
      if (paths_known) return RightLink(culprit, sim);
      return RightConnections(fault, culprit, sim);
    case Fault::kCutNic:
    case Fault::kSlowNic:
      return culprit.kind() == v1::CULPRIT_KIND_NIC && culprit.nic() == sim.nic(target);
    case Fault::kLostNode:
      return culprit.kind() == v1::CULPRIT_KIND_NODE && culprit.host() == "host" + std::to_string(target);
    default:
      return culprit.kind() == v1::CULPRIT_KIND_RANK && culprit.rank() == static_cast<int32_t>(target) &&
             culprit.process().pid() == 1000 + target;
  }
}

}  // namespace

const char* FaultName(Fault fault) {
  static constexpr const char* kNames[] = {"none",         "stop",      "kill",       "mismatch",
                                           "cut-link",     "cut-nic",   "slow-link",  "slow-nic",
                                           "slow-rank",    "lost-node", "checkpoint", "evaluation",
                                           "agent-silent", "jitter",    "hiccups"};
  return kNames[static_cast<int>(fault)];
}

TrialResult RunTrial(Fault fault, const TrainingShape& shape, uint64_t seed, bool paths_known) {
  std::mt19937_64 random(seed * 7919 + static_cast<uint64_t>(fault));
  TrainingSim sim(shape, seed);
  c4d::VerdictStore store(":memory:");
  service::Metrics metrics;
  c4d::HandlerOptions options;
  options.job = "job";
  options.master_epoch = 1;
  SimulatedPaths source(&sim);
  c4d::C4dHandler handler(options, &store, &metrics, paths_known ? &source : nullptr);
  TrialResult result;
  const Expected expected = ExpectedOf(fault, shape, paths_known);
  uint32_t target = 0;
  int64_t injected_ns = INT64_MAX;
  std::set<std::string> judged;
  handler.Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED) return;
    const double after_s =
        static_cast<double>(verdict.confirmed_unix_ns() - injected_ns - (sim.unix_ns() - sim.now_ns())) / 1e9;
    const bool is_new = judged.insert(verdict.id()).second;
    if (injected_ns <= sim.now_ns() && IsRight(fault, expected, paths_known, target, verdict, sim) &&
        after_s <= expected.within_s + 0.3) {
      result.found = true;
      result.ambiguous = verdict.culprit().kind() == v1::CULPRIT_KIND_AMBIGUOUS;
      if (result.confirmed_after_s < 0) result.confirmed_after_s = after_s;
      if (!is_new) return;
    } else if (is_new) {
      ++result.wrong;
    } else {
      return;
    }
    result.told += service::VerdictLine(verdict, sim.unix_ns()) + "\n";
    for (const v1::Evidence& item : verdict.evidence()) result.told += "    " + item.text() + "\n";
  });
  const auto pass = [&](double seconds) {
    for (int step = 0; step < static_cast<int>(seconds * 4); ++step) {
      for (const v1::TelemetryBatch& batch : sim.Step()) {
        (void)handler.Ingest(batch, {sim.now_ns(), sim.unix_ns()});
      }
      handler.Tick({sim.now_ns(), sim.unix_ns()});
    }
  };
  if (!shape.from_start) pass(30 + static_cast<double>(random() % 20));
  const uint32_t leaves = (shape.ranks() + shape.hosts_per_leaf - 1) / shape.hosts_per_leaf;
  const bool link = fault == Fault::kCutLink || fault == Fault::kSlowLink;
  target = static_cast<uint32_t>(random() % (link ? leaves * shape.spines : shape.ranks()));
  injected_ns = sim.now_ns();
  sim.Inject(fault, target);
  if (link) {
    const std::vector<TrainingSim::Path> paths = sim.paths();
    result.applicable = std::any_of(paths.begin(), paths.end(), [&](const TrainingSim::Path& path) {
      if (fault == Fault::kSlowLink) return path.over_target;
      return shape.fail_over ? path.over_target || path.acks_over_target : path.stuck;
    });
  }
  pass(fault == Fault::kCheckpoint || shape.from_start ? 60 : 20);
  sim.Heal();
  const bool ends = fault == Fault::kKill || fault == Fault::kMismatch;
  if (!ends) {
    pass(25);
    const v1::ListVerdictsReply open = handler.ListVerdicts(false);
    result.cleared = open.verdicts().empty();
    for (const v1::Verdict& verdict : open.verdicts()) {
      result.told += "still open: " + service::VerdictLine(verdict, sim.unix_ns()) + "\n";
    }
  }
  if (expected.syndrome == v1::SYNDROME_UNSPECIFIED) result.found = result.wrong == 0;
  return result;
}

}  // namespace c4::simulation
