#include "c4d_master/mitigation/placement_offer.h"

#include <algorithm>
#include <cmath>

#include "analysis/mitigation/placement_search.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using mitigation::IterationModel;
using mitigation::PlacedJob;
using mitigation::Placement;
using service::Concat;
using HostPair = std::pair<std::string, std::string>;

constexpr double kTellingShare = 1.0 / 1000;  // of what the busiest pair carries: less tells nothing
constexpr double kSlowWorker = 1.1;           // times its stage's usual
constexpr double kStatePerGradient = 3;       // weights and an optimizer's two moments
constexpr double kFreeBytesPerS = 1e12;
constexpr double kLeastBytesPerS = 1e3;
constexpr uint64_t kMostOperations = 4'000'000;  // tens of milliseconds on the master's thread
constexpr size_t kMostTold = 8;

HostPair PairOf(const std::string& a, const std::string& b) {
  return a < b ? HostPair{a, b} : HostPair{b, a};
}

// A stage of a data-parallel group: its tensor- and context-parallel ranks, which stay together.
struct Worker {
  std::string host;
  std::vector<const PlacedProcess*> members;  // by tp_rank, cp_rank
  double micro_batch_s = 0;
  int least_rank = 0;
  int place = 0;
};

// The job, worker by worker as the model numbers them: stage * groups + group.
struct Layout {
  int groups = 1;
  int stages = 1;
  std::vector<Worker> workers;
  std::vector<std::string> hosts;  // by node
  std::vector<int64_t> micro_batches;
  int places_per_node = 1;

  int NumberOf(const v1::WorkerPlace& place) const {
    return static_cast<int>(place.stage()) * groups + static_cast<int>(place.dp_rank());
  }
};

// What is missing is the answer.
std::string LayOut(const std::vector<PlacedProcess>& processes, const std::map<HostPid, int32_t>& ranks,
                   Layout* layout) {
  const v1::WorkerPlace& first = processes.front().worker;
  layout->groups = static_cast<int>(std::max(1U, first.dp_size()));
  layout->stages = static_cast<int>(std::max(1U, first.pp_size()));
  layout->workers.resize(static_cast<size_t>(layout->groups) * static_cast<size_t>(layout->stages));
  layout->micro_batches.assign(static_cast<size_t>(layout->groups), 1);
  if (first.vpp_size() > 1) return "stages of an interleaved pipeline cannot change places yet";
  for (const PlacedProcess& process : processes) {
    const auto rank = ranks.find(process.process);
    if (rank == ranks.end() || rank->second < 0) return "C4D does not know the rank of every process";
    Worker& worker = layout->workers[static_cast<size_t>(layout->NumberOf(process.worker))];
    if (!worker.members.empty() && worker.host != process.process.first) {
      return "ranks that share a stage are on several hosts, and would have to stay together";
    }
    worker.least_rank = worker.members.empty() ? rank->second : std::min(worker.least_rank, rank->second);
    worker.host = process.process.first;
    worker.members.push_back(&process);
    worker.micro_batch_s = std::max(worker.micro_batch_s, process.micro_batch_s);
    layout->micro_batches[process.worker.dp_rank()] = std::max<int64_t>(1, process.micro_batches);
  }
  std::map<std::string, std::vector<Worker*>> by_host;
  for (Worker& worker : layout->workers) {
    std::sort(worker.members.begin(), worker.members.end(),
              [](const PlacedProcess* a, const PlacedProcess* b) {
                return std::pair(a->worker.tp_rank(), a->worker.cp_rank()) <
                       std::pair(b->worker.tp_rank(), b->worker.cp_rank());
              });
    by_host[worker.host].push_back(&worker);
  }
  const size_t each = by_host.begin()->second.size();
  layout->places_per_node = static_cast<int>(each);
  for (auto& [host, workers] : by_host) {
    if (workers.size() != each) return "hosts run different numbers of workers";
    std::sort(workers.begin(), workers.end(),
              [](const Worker* a, const Worker* b) { return a->least_rank < b->least_rank; });
    for (size_t i = 0; i < each; ++i) workers[i]->place = static_cast<int>(layout->hosts.size() * each + i);
    layout->hosts.push_back(host);
  }
  return "";
}

// Of a stage: the usual time of its workers, the lower median.
double UsualS(const Layout& layout, int stage) {
  std::vector<double> times_s;
  for (int group = 0; group < layout.groups; ++group) {
    times_s.push_back(layout.workers[static_cast<size_t>(stage * layout.groups + group)].micro_batch_s);
  }
  std::sort(times_s.begin(), times_s.end());
  return times_s[(times_s.size() - 1) / 2];
}

// What an iteration carries: gradients as though around a ring, activations from stage to stage.
void FillTraffic(const Layout& layout, const BytesByPair<double>& per_step, PlacedJob* job) {
  std::map<HostPid, int> worker_of;
  for (int number = 0; number < static_cast<int>(layout.workers.size()); ++number) {
    for (const PlacedProcess* member : layout.workers[static_cast<size_t>(number)].members) {
      worker_of[member->process] = number;
    }
  }
  std::map<int, double> gradients;                    // that a worker sends
  std::map<std::pair<int, int>, double> activations;  // from worker to worker
  for (const auto& [ends, bytes] : per_step) {
    const auto from = worker_of.find(ends.first);
    const auto to = worker_of.find(ends.second);
    if (from == worker_of.end() || to == worker_of.end()) continue;
    const int from_stage = from->second / layout.groups;
    const int to_stage = to->second / layout.groups;
    const bool same_group = from->second % layout.groups == to->second % layout.groups;
    if (from_stage == to_stage && !same_group) gradients[from->second] += bytes;
    if (same_group && std::abs(from_stage - to_stage) == 1) activations[{from->second, to->second}] += bytes;
  }
  const double groups = layout.groups;
  for (const auto& [worker, bytes] : gradients) {
    mitigation::StageCost& stage = job->stages[static_cast<size_t>(worker / layout.groups)];
    stage.gradient_bytes = std::max(stage.gradient_bytes, bytes * groups / (2 * (groups - 1)));
    job->state_bytes = std::max(job->state_bytes, kStatePerGradient * stage.gradient_bytes);
  }
  for (const auto& [ends, bytes] : activations) {
    const auto group = static_cast<size_t>(ends.first % layout.groups);
    job->activation_bytes =
        std::max(job->activation_bytes, bytes / static_cast<double>(layout.micro_batches[group]));
  }
}

// Of how much the model's job is slower than a healthy one.
double SlowDownS(const PlacedJob& job, const Placement& now) {
  const PlacedJob healthy = mitigation::Healthy(job);
  return IterationModel(job).Time(now) - IterationModel(healthy).Time(now);
}

// The speed of a healthy link with which the model is slowed down by `slow_s`: the slower links are, the more
// it is. False: with none.
bool Calibrate(double slow_s, const Placement& now, PlacedJob* job) {
  double low = std::log(kLeastBytesPerS);
  double high = std::log(kFreeBytesPerS);
  job->node_bytes_per_s = kLeastBytesPerS;
  if (SlowDownS(*job, now) < slow_s) return false;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    job->node_bytes_per_s = std::exp(middle);
    (SlowDownS(*job, now) > slow_s ? low : high) = middle;
  }
  return true;
}

PlacedJob JobOf(const Layout& layout, const BytesByPair<double>& per_step,
                const std::map<HostPair, double>& slow) {
  PlacedJob job;
  job.groups = layout.groups;
  job.places_per_node = layout.places_per_node;
  job.micro_batches = layout.micro_batches;
  job.node_bytes_per_s = job.inner_bytes_per_s = kFreeBytesPerS;
  job.compute_factor.assign(layout.workers.size(), 1);
  for (int stage = 0; stage < layout.stages; ++stage) {
    const double usual_s = UsualS(layout, stage);
    job.stages.push_back({.forward_s = usual_s / 3, .backward_s = usual_s * 2 / 3, .gradient_bytes = 0});
    for (int group = 0; group < layout.groups && usual_s > 0; ++group) {
      const Worker& worker = layout.workers[static_cast<size_t>(stage * layout.groups + group)];
      const double factor = worker.micro_batch_s / usual_s;
      if (factor > kSlowWorker) job.compute_factor[static_cast<size_t>(worker.place)] = factor;
    }
  }
  FillTraffic(layout, per_step, &job);
  for (int a = 0; a < static_cast<int>(layout.hosts.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(layout.hosts.size()); ++b) {
      const auto pair =
          slow.find(PairOf(layout.hosts[static_cast<size_t>(a)], layout.hosts[static_cast<size_t>(b)]));
      if (pair != slow.end()) job.slow_links.push_back({.node_a = a, .node_b = b, .share = 1 / pair->second});
    }
  }
  return job;
}

std::string MovesText(const Layout& layout, const mitigation::PlacementPlan& plan) {
  std::string text;
  for (size_t i = 0; i < std::min(plan.moves.size(), kMostTold); ++i) {
    const mitigation::Move& move = plan.moves[i];
    const auto host = [&layout](int place) {
      return layout.hosts[static_cast<size_t>(place / layout.places_per_node)];
    };
    text += Concat(i == 0 ? "" : ", ", "stage ", move.stage, " of group ", move.group, " from ",
                   host(move.from_place), " to ", host(move.to_place));
  }
  if (plan.moves.size() > kMostTold) text += Concat(", and ", plan.moves.size() - kMostTold, " more");
  return text;
}

}  // namespace

std::map<HostPair, double> SlowHostPairs(const v1::GetMatrixReply& matrix,
                                         const BytesByPair<double>& per_step) {
  std::map<HostPair, double> carried;
  double most = 0;
  for (const auto& [ends, bytes] : per_step) {
    if (ends.first.first == ends.second.first) continue;
    double& sum = carried[PairOf(ends.first.first, ends.second.first)];
    sum += bytes;
    most = std::max(most, sum);
  }
  const auto tells = [&](const HostPair& pair) {
    const auto at = carried.find(pair);
    return at != carried.end() && at->second >= kTellingShare * most;
  };
  std::map<HostPair, double> slow;
  std::map<std::string, double> slowest;  // by host, the worst of its links
  for (const v1::MatrixCell& cell : matrix.cells()) {
    if (cell.from_host() == cell.to_host()) continue;
    const HostPair pair = PairOf(cell.from_host(), cell.to_host());
    if (!cell.slow() || !std::isfinite(cell.ratio()) || cell.ratio() <= 1 || !tells(pair)) continue;
    slow[pair] = std::max(slow[pair], cell.ratio());
    for (const std::string& host : {pair.first, pair.second}) {
      slowest[host] = std::max(slowest[host], cell.ratio());
    }
  }
  for (const auto& [a, worst_a] : slowest) {
    for (const auto& [b, worst_b] : slowest) {
      const HostPair pair = {a, b};
      if (a < b && !tells(pair) && !slow.contains(pair)) slow[pair] = std::min(worst_a, worst_b);
    }
  }
  return slow;
}

PlacementOffer OfferPlacement(const std::vector<PlacedProcess>& processes,
                              const std::map<HostPid, int32_t>& ranks, const BytesByPair<double>& per_step,
                              const v1::GetMatrixReply& matrix, double healthy_s, double iteration_s) {
  PlacementOffer offer;
  Layout layout;
  offer.unavailable = processes.empty() ? "no process is known" : LayOut(processes, ranks, &layout);
  if (!offer.unavailable.empty()) return offer;
  PlacedJob job = JobOf(layout, per_step, SlowHostPairs(matrix, per_step));
  Placement now;
  for (const Worker& worker : layout.workers) now.push_back(worker.place);
  const bool has_slow_places = std::any_of(job.compute_factor.begin(), job.compute_factor.end(),
                                           [](double factor) { return factor > 1; });
  if (job.slow_links.empty() && !has_slow_places) {
    offer.unavailable = "no link and no worker is known to be slower than the others";
    return offer;
  }
  const absl::Status checked = mitigation::CheckJob(job);
  if (!checked.ok()) {
    offer.unavailable = std::string(checked.message());
    return offer;
  }
  const double slow_s = iteration_s - healthy_s;
  if (!job.slow_links.empty() && !Calibrate(slow_s, now, &job)) {
    offer.unavailable = "what the job sends over its slow links does not explain the slow-down";
    return offer;
  }
  const auto plan = mitigation::FindPlacement(job, now, {.most_operations = kMostOperations});
  if (!plan.ok() || plan->moves.empty()) {
    offer.unavailable =
        plan.ok() ? "no other placement would be better" : std::string(plan.status().message());
    return offer;
  }
  offer.cost_s = iteration_s + plan->swap_s;
  offer.promised_s = iteration_s - plan->Removed() * slow_s;
  offer.what = MovesText(layout, *plan);
  std::vector<int> now_at(now.size());  // worker by place
  std::vector<int> next_at(now.size());
  for (size_t worker = 0; worker < now.size(); ++worker) {
    now_at[static_cast<size_t>(now[worker])] = static_cast<int>(worker);
    next_at[static_cast<size_t>(plan->placement[worker])] = static_cast<int>(worker);
  }
  std::vector<int64_t> first(layout.micro_batches.size(), 0);
  for (size_t group = 1; group < first.size(); ++group) {
    first[group] = first[group - 1] + layout.micro_batches[group - 1];
  }
  for (size_t place = 0; place < now.size(); ++place) {
    const auto was = static_cast<size_t>(now_at[place]);
    const auto will = static_cast<size_t>(next_at[place]);
    // Who runs where the old state goes to, and where the new one is.
    const auto& takers =
        layout.workers[static_cast<size_t>(now_at[static_cast<size_t>(plan->placement[was])])];
    const Worker& givers = layout.workers[will];
    for (size_t i = 0; i < layout.workers[was].members.size(); ++i) {
      const PlacedProcess& process = *layout.workers[was].members[i];
      PlacementStep& step = offer.steps[process.process];
      step.now = step.next = process.worker;
      step.next.set_stage(static_cast<uint32_t>(will / static_cast<size_t>(layout.groups)));
      step.next.set_dp_rank(static_cast<uint32_t>(will % static_cast<size_t>(layout.groups)));
      if (was != will) {
        step.send_to = ranks.at(takers.members[i]->process);
        step.receive_from = ranks.at(givers.members[i]->process);
      }
      step.first_micro_batch = first[step.next.dp_rank()];
      step.micro_batches = layout.micro_batches[step.next.dp_rank()];
    }
  }
  return offer;
}

}  // namespace c4::c4d
