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

Expected ExpectedOf(Fault fault) {
  switch (fault) {
    case Fault::kStop:
      return {v1::SYNDROME_NON_COMMUNICATION_HANG, 5};
    case Fault::kKill:
      return {v1::SYNDROME_CRASH, 5};
    case Fault::kMismatch:
      return {v1::SYNDROME_MISMATCH, 5};
    case Fault::kCutLink:
    case Fault::kCutNic:
      return {v1::SYNDROME_COMMUNICATION_HANG, 5};
    case Fault::kSlowLink:
    case Fault::kSlowNic:
      return {v1::SYNDROME_COMMUNICATION_SLOW, 10};
    case Fault::kSlowRank:
      return {v1::SYNDROME_NON_COMMUNICATION_SLOW, 10};
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

bool IsRight(Fault fault, uint32_t target, const v1::Verdict& verdict, const TrainingSim& sim) {
  if (verdict.syndrome() != ExpectedOf(fault).syndrome) return false;
  const v1::Culprit& culprit = verdict.culprit();
  switch (fault) {
    case Fault::kCutLink:
    case Fault::kSlowLink:
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
  static constexpr const char* kNames[] = {
      "none",     "stop",      "kill",      "mismatch",   "cut-link",   "cut-nic",      "slow-link",
      "slow-nic", "slow-rank", "lost-node", "checkpoint", "evaluation", "agent-silent", "jitter"};
  return kNames[static_cast<int>(fault)];
}

TrialResult RunTrial(Fault fault, const TrainingShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + static_cast<uint64_t>(fault));
  TrainingSim sim(shape, seed);
  c4d::VerdictStore store(":memory:");
  service::Metrics metrics;
  c4d::HandlerOptions options;
  options.job = "job";
  options.master_epoch = 1;
  c4d::C4dHandler handler(options, &store, &metrics);
  TrialResult result;
  const Expected expected = ExpectedOf(fault);
  uint32_t target = 0;
  int64_t injected_ns = INT64_MAX;
  std::set<std::string> judged;
  handler.Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED) return;
    const double after_s =
        static_cast<double>(verdict.confirmed_unix_ns() - injected_ns - (sim.unix_ns() - sim.now_ns())) / 1e9;
    const bool is_new = judged.insert(verdict.id()).second;
    if (injected_ns <= sim.now_ns() && IsRight(fault, target, verdict, sim) &&
        after_s <= expected.within_s + 0.3) {
      result.found = true;
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
  pass(30 + static_cast<double>(random() % 20));
  const uint32_t leaves = (shape.ranks() + shape.hosts_per_leaf - 1) / shape.hosts_per_leaf;
  const bool link = fault == Fault::kCutLink || fault == Fault::kSlowLink;
  target = static_cast<uint32_t>(random() % (link ? leaves * shape.spines : shape.ranks()));
  injected_ns = sim.now_ns();
  sim.Inject(fault, target);
  if (link) {
    const std::vector<TrainingSim::Path> paths = sim.paths();
    result.applicable = std::any_of(paths.begin(), paths.end(), [&](const TrainingSim::Path& path) {
      return fault == Fault::kCutLink ? path.stuck : path.over_target;
    });
  }
  pass(fault == Fault::kCheckpoint ? 60 : 20);
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
