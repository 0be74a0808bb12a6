#include "benchmarks/job_trial.h"

#include <algorithm>
#include <random>
#include <set>

#include "c4d_master/c4d_handler.h"
#include "fabric/jobsim/physics.h"
#include "fabric/jobsim/telemetry.h"
#include "service/verdict_json.h"

namespace c4::benchmarks {
namespace {

using jobsim::FaultKind;

constexpr int64_t kReportNs = 250'000'000;
constexpr int64_t kStartNs = 1'000'000'000'000;
constexpr int64_t kStartUnixNs = 1'700'000'000'000'000'000;
constexpr double kLateS = 0.5;  // reports and looks

// What is to be said of a fault, and when at the latest.
struct Accepted {
  v1::Syndrome syndrome = v1::SYNDROME_UNSPECIFIED;
  v1::CulpritKind culprit = v1::CULPRIT_KIND_RANK;
  double limit_s = 0;
};

Accepted AcceptedOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSpin:
      // From outside a kernel that spins is a long one: the limit alone tells.
      return {v1::SYNDROME_NON_COMMUNICATION_HANG, v1::CULPRIT_KIND_RANK, 125};
    case FaultKind::kDataLoader:
      // Nothing is certain before the process has been without progress of its own for ten seconds.
      return {v1::SYNDROME_NON_COMMUNICATION_HANG, v1::CULPRIT_KIND_RANK, 15};
    case FaultKind::kStop:
      return {v1::SYNDROME_NON_COMMUNICATION_HANG, v1::CULPRIT_KIND_RANK, 5};
    case FaultKind::kKill:
      return {v1::SYNDROME_CRASH, v1::CULPRIT_KIND_RANK, 5};
    case FaultKind::kStuckInside:
      // Within a node nothing tells the members apart: all that are inside are candidates.
      return {v1::SYNDROME_COMMUNICATION_HANG, v1::CULPRIT_KIND_AMBIGUOUS, 125};
    case FaultKind::kSlowGpu:
      return {v1::SYNDROME_NON_COMMUNICATION_SLOW, v1::CULPRIT_KIND_RANK, 30};
    case FaultKind::kSlowNode:
      return {v1::SYNDROME_NON_COMMUNICATION_SLOW, v1::CULPRIT_KIND_NODE, 30};
    case FaultKind::kSlowTensor:
      return {v1::SYNDROME_NON_COMMUNICATION_SLOW, v1::CULPRIT_KIND_AMBIGUOUS, 30};
    case FaultKind::kNone:
      break;
  }
  return {};
}

bool IsRight(const jobsim::Shape& shape, const jobsim::Fault& fault, const v1::Verdict& verdict) {
  const Accepted accepted = AcceptedOf(fault.kind);
  const v1::Culprit& culprit = verdict.culprit();
  const std::string node = "node" + std::to_string(shape.node(fault.rank));
  // A tensor parallel group that fills its node is the node.
  const bool node_is_group = fault.kind == FaultKind::kSlowTensor && shape.tensor == shape.ranks_per_node;
  const v1::CulpritKind kind = node_is_group ? v1::CULPRIT_KIND_NODE : accepted.culprit;
  if (verdict.syndrome() != accepted.syndrome || culprit.kind() != kind) return false;
  switch (kind) {
    case v1::CULPRIT_KIND_RANK:
      return culprit.rank() == static_cast<int32_t>(fault.rank);
    case v1::CULPRIT_KIND_NODE:
      return culprit.host() == node;
    default: {
      // The rank is among them, and no more than those that share a communicator with it.
      const auto& named = culprit.candidates();
      const auto most = static_cast<int>(std::max(shape.tensor, shape.data));
      return named.size() <= most &&
             std::find(named.begin(), named.end(), static_cast<int32_t>(fault.rank)) != named.end();
    }
  }
}

}  // namespace

jobsim::Shape DrawShape(uint32_t ranks, uint64_t seed) {
  std::mt19937_64 random(seed ^ 0x5ba9e);
  jobsim::Shape shape;
  shape.tensor = random() % 2 == 0 ? 4 : 8;
  shape.pipeline = std::max(1U, std::min(1U << (random() % 3), ranks / shape.tensor / 2));
  shape.data = std::max(1U, ranks / shape.tensor / shape.pipeline);
  shape.engine = random() % 2 == 0 ? jobsim::Engine::kVendor : jobsim::Engine::kHost;
  shape.micro_batches = 4 + static_cast<uint32_t>(random() % 5);
  shape.forward_ns = 20'000'000 + static_cast<int64_t>(random() % 60'000'000);
  shape.noise = 0.01 + 0.005 * static_cast<double>(random() % 8);
  return shape;
}

JobTrial RunJobTrial(const jobsim::Shape& shape, FaultKind kind, uint64_t seed, double healthy_s) {
  std::mt19937_64 random(seed * 7919 + static_cast<uint64_t>(kind));
  jobsim::Fault fault;
  fault.kind = kind;
  fault.rank = static_cast<uint32_t>(random() % shape.ranks());
  fault.factor = 2.5 + 0.25 * static_cast<double>(random() % 8);
  const bool healthy = kind == FaultKind::kNone;
  if (!healthy) fault.at_ns = 60'000'000'000 + static_cast<int64_t>(random() % 20'000'000'000);
  jobsim::Physics physics(shape, fault, seed);
  jobsim::Agents agents(shape, fault, &physics, kStartNs, kStartUnixNs);
  c4d::VerdictStore store(":memory:");
  service::Metrics metrics;
  c4d::HandlerOptions options;
  options.job = "job";
  options.master_epoch = 1;
  c4d::C4dHandler handler(options, &store, &metrics);
  JobTrial trial;
  trial.limit_s = AcceptedOf(kind).limit_s;
  std::set<std::string> judged;
  handler.Subscribe([&](const v1::Verdict& verdict) {
    if (verdict.state() != v1::VERDICT_STATE_CONFIRMED || !judged.insert(verdict.id()).second) return;
    const double after_s =
        static_cast<double>(verdict.confirmed_unix_ns() - kStartUnixNs - fault.at_ns) / 1e9;
    if (!healthy && after_s >= 0 && after_s <= trial.limit_s + kLateS && IsRight(shape, fault, verdict)) {
      trial.right = true;
      trial.ambiguous = verdict.culprit().kind() == v1::CULPRIT_KIND_AMBIGUOUS;
      trial.after_s = after_s;
    } else {
      ++trial.wrong;
    }
    trial.told += service::VerdictLine(verdict, verdict.confirmed_unix_ns()) + "\n";
    for (const v1::Evidence& item : verdict.evidence()) trial.told += "    " + item.text() + "\n";
  });
  const int64_t end_ns = healthy ? static_cast<int64_t>(healthy_s * 1e9)
                                 : fault.at_ns + static_cast<int64_t>((trial.limit_s + 3) * 1e9);
  for (int64_t at_ns = kReportNs; at_ns <= end_ns; at_ns += kReportNs) {
    const c4d::Now now = {kStartNs + at_ns, kStartUnixNs + at_ns};
    for (const v1::TelemetryBatch& batch : agents.Report(at_ns)) {
      const auto taken = handler.Ingest(batch, now);
      if (!taken.ok()) trial.told += std::string(taken.status().message()) + "\n";
    }
    handler.Tick(now);
  }
  if (healthy) trial.right = trial.wrong == 0;
  return trial;
}

}  // namespace c4::benchmarks
