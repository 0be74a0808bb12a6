// path_replan repair|churn [--nics N] [--tiers 2|3] [--links N] [--workloads N] [--events N]: what the path
// master's allocator does when the network or the jobs change.
//
//   repair  a full-size network is filled job by job (65,536 NICs x 16 peers x 8 queue pairs); then so many
//           links of leaves fail one after the other, and come back: what is planned, and in what time. Each
//           step says how long it took, so that a run that is cut short has said something.
//   churn   seeded workloads: jobs come and go at random on a network that is 85 % full; after each the
//   allocator
//           evens out by moving 2 % of the queue pairs at most: the fullest link beside the perfectly even
//           load, and what moved.
//
// The perfectly even load is, of all leaves and directions, the most traffic that one has to carry, divided
// by its links and rounded up to whole queue pairs. Times are of the thread's CPU. Exit status 1 when a
// target is missed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "c4p_master/alloc/allocator.h"
#include "c4p_master/alloc/flowsim_policy.h"
#include "fabric/flowsim/clos.h"

namespace {

using c4::flowsim::Clos;
using c4::flowsim::ClosSpec;
namespace c4p = c4::c4p;

constexpr double kMostPlanMs = 50;
constexpr double kEnough = 1.02;
constexpr double kMostMoves = 0.02;
constexpr uint32_t kQueuePairs = 8;
constexpr int kPeers = 16;
constexpr int kJobNics = 1024;

struct Options {
  std::string what;
  int nics = 65536;
  int tiers = 2;
  int links = 20;
  int workloads = 100;
  int events = 40;
};

// What is refused here is a defect of this program.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "path_replan: %s\n", std::string(status.message()).c_str());
  std::_Exit(2);
}

class Watch {
 public:
  double Ms() const { return (Now() - begin_) * 1e3; }

 private:
  static double Now() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }
  double begin_ = Now();
};

Clos MakeClos(const ClosSpec& spec) {
  absl::StatusOr<Clos> clos = Clos::Make(spec);
  Must(clos.status());
  return *std::move(clos);
}

// As path_allocation's: 64 NICs under a pair of leaves, 64 spines; in three tiers pods of 512 NICs.
ClosSpec FullSize(const Options& options) {
  ClosSpec spec{.spines = 64, .hosts_per_leaf = 64, .planes = 2, .host_mbps = 200e3, .spine_mbps = 200e3};
  spec.leaves = std::max(2, options.nics / 64 * 2);
  if (options.tiers == 3) {
    const int leaves = spec.leaves;
    spec.leaves = std::min(leaves, 16);
    spec.pods = leaves / spec.leaves;
    spec.cores_per_spine = 16;
    spec.core_mbps = 200e3;
  }
  return spec;
}

// A job: each NIC sends to so many of the others, at random distances.
std::vector<c4p::ConnectionRequest> Requests(const std::vector<uint32_t>& nics, uint32_t tenant, int peers,
                                             std::mt19937* random) {
  std::vector<c4p::ConnectionRequest> requests;
  for (int peer = 0; peer < peers && nics.size() > 1; ++peer) {
    const size_t distance = 1 + (*random)() % (nics.size() - 1);
    for (size_t i = 0; i < nics.size(); ++i) {
      requests.push_back({.connection = 0,
                          .tenant = tenant,
                          .from = nics[i],
                          .to = nics[(i + distance) % nics.size()],
                          .queue_pairs = kQueuePairs,
                          .demand_mbps = 0,
                          .available = {}});
    }
  }
  std::shuffle(requests.begin(), requests.end(), *random);
  return requests;
}

void CarryOut(const c4p::Plan& plan, c4p::Allocator* allocator) {
  for (const c4p::Move& move : plan.moves) Must(allocator->Apply(move));
}

bool MeasureRepair(const Options& options) {
  const Clos clos = MakeClos(FullSize(options));
  c4p::Network network = c4p::NetworkOf(clos);
  c4p::Allocator allocator(&network);
  std::mt19937 random(1);
  std::vector<uint32_t> nics(static_cast<size_t>(clos.hosts()));
  std::iota(nics.begin(), nics.end(), 0U);
  const Watch filling;
  c4p::ConnectionId next = 0;
  for (size_t first = 0; first < nics.size(); first += kJobNics) {
    const std::vector<uint32_t> own(
        nics.begin() + static_cast<ptrdiff_t>(first),
        nics.begin() + static_cast<ptrdiff_t>(std::min(first + kJobNics, nics.size())));
    for (c4p::ConnectionRequest& request :
         Requests(own, static_cast<uint32_t>(first / kJobNics), kPeers, &random)) {
      request.connection = next++;
      Must(allocator.Allocate(request).status());
    }
  }
  printf("%d NICs, %d leaves, %d tiers: %u connections of %u queue pairs, filled in %.1f s\n", clos.hosts(),
         clos.leaves(), options.tiers, next, kQueuePairs, filling.Ms() / 1e3);
  fflush(stdout);
  std::vector<double> repairs, evens;
  size_t repaired = 0;
  size_t evened = 0;
  for (int i = 0; i < options.links; ++i) {
    const auto leaf = static_cast<uint32_t>(random() % static_cast<unsigned>(clos.leaves()));
    const auto pod = leaf / static_cast<uint32_t>(clos.spec().leaves);
    const auto spine = static_cast<uint32_t>(random() % static_cast<unsigned>(clos.spec().spines));
    const c4p::Link link{c4p::Tier::kLeaf, leaf, pod * static_cast<uint32_t>(clos.spec().spines) + spine};
    Must(network.SetUp(link, false));
    const Watch failing;
    const c4p::Plan repair = allocator.PlanRepair();
    repairs.push_back(failing.Ms());
    CarryOut(repair, &allocator);
    Must(network.SetUp(link, true));
    const Watch recovering;
    const c4p::Plan even = allocator.PlanEven(1000, &link);
    evens.push_back(recovering.Ms());
    CarryOut(even, &allocator);
    repaired += repair.steps();
    evened += even.steps();
    printf(
        "  leaf %u, spine %u fails: %zu queue pairs move, planned in %.2f ms; back: %zu move, planned in "
        "%.2f ms\n",
        link.lower, link.upper, repair.steps(), repairs.back(), even.steps(), evens.back());
    fflush(stdout);
  }
  const double worst = *std::max_element(repairs.begin(), repairs.end());
  printf(
      "of %d links: a failure's plan %.2f ms in the median, %.2f at most, %zu queue pairs in all; a return's "
      "%.2f, "
      "%.2f, %zu\n",
      options.links, c4::Median(repairs), worst, repaired, c4::Median(evens),
      *std::max_element(evens.begin(), evens.end()), evened);
  return worst <= kMostPlanMs && repaired > 0;
}

// The fullest link of leaves and spines beside the perfectly even load.
double Evenness(const c4p::Network& network, const c4p::Allocator& allocator, int64_t grain_kbps) {
  double fullest = 0;
  double even = 0;
  for (const c4p::Tier tier : {c4p::Tier::kLeaf, c4p::Tier::kSpine}) {
    for (uint32_t number = 0; number < network.rows(tier); ++number) {
      const c4p::Network::Row& row = network.RowAt({tier, number});
      std::vector<int64_t> loads(row.kbps.size());
      for (uint32_t i = 0; i < loads.size(); ++i) loads[i] = allocator.accounts().Load({{tier, number}, i});
      int64_t sum = 0;
      int64_t links = 0;
      int64_t kbps = 0;
      for (size_t i = 0; i < loads.size(); ++i) {
        if (row.inverse[i] == c4p::Network::kFullForEver) continue;
        fullest = std::max(fullest, static_cast<double>(loads[i]) * row.inverse[i]);
        sum += loads[i];
        ++links;
        kbps = row.kbps[i];
      }
      if (links == 0) continue;
      const int64_t each = (sum + links * grain_kbps - 1) / (links * grain_kbps) * grain_kbps;
      even = std::max(even, static_cast<double>(each) / static_cast<double>(kbps));
    }
  }
  return even > 0 ? fullest / even : 1;
}

struct Shape {
  const char* name;
  ClosSpec spec;
  int peers;
};

struct Churn {
  std::vector<double> before, after, moved;
};

// One workload: jobs come and go.
void RunWorkload(const Shape& shape, const Options& options, unsigned seed, Churn* churn) {
  const Clos clos = MakeClos(shape.spec);
  c4p::Network network = c4p::NetworkOf(clos);
  c4p::Allocator allocator(&network);
  std::mt19937 random(seed);
  std::vector<uint32_t> free(static_cast<size_t>(clos.hosts()));
  std::iota(free.begin(), free.end(), 0U);
  struct Job {
    std::vector<uint32_t> nics;
    std::vector<c4p::ConnectionId> connections;
  };
  std::map<uint32_t, Job> jobs;
  std::vector<c4p::ConnectionId> numbers;
  c4p::ConnectionId next = 0;
  uint32_t tenant = 0;
  size_t queue_pairs = 0;
  const auto come = [&] {
    const size_t size = std::min(free.size(), size_t{2} << (random() % 6));
    if (size < 2) return false;
    std::shuffle(free.begin(), free.end(), random);
    Job& job = jobs[++tenant];
    job.nics.assign(free.end() - static_cast<ptrdiff_t>(size), free.end());
    free.resize(free.size() - size);
    for (c4p::ConnectionRequest& request : Requests(job.nics, tenant, shape.peers, &random)) {
      request.connection = numbers.empty() ? next++ : numbers.back();
      if (!numbers.empty()) numbers.pop_back();
      job.connections.push_back(request.connection);
      Must(allocator.Allocate(request).status());
      queue_pairs += kQueuePairs;
    }
    return true;
  };
  const auto go = [&] {
    const auto at = std::next(jobs.begin(), static_cast<ptrdiff_t>(random() % jobs.size()));
    for (const c4p::ConnectionId number : at->second.connections) {
      Must(allocator.Release(number));
      numbers.push_back(number);
      queue_pairs -= kQueuePairs;
    }
    free.insert(free.end(), at->second.nics.begin(), at->second.nics.end());
    jobs.erase(at);
  };
  const auto full = [&] { return 1 - static_cast<double>(free.size()) / static_cast<double>(clos.hosts()); };
  while (full() < 0.85 && come()) {
  }
  for (int event = 0; event < options.events; ++event) {
    if (full() < 0.85 || jobs.empty()) {
      if (!come()) continue;
    } else {
      go();
    }
    if (jobs.empty()) continue;
    const int64_t grain = allocator.CountedKbps(jobs.begin()->second.connections.front());
    churn->before.push_back(Evenness(network, allocator, grain));
    const auto most = static_cast<size_t>(kMostMoves * static_cast<double>(queue_pairs));
    const c4p::Plan plan = allocator.PlanEven(most);
    CarryOut(plan, &allocator);
    churn->after.push_back(Evenness(network, allocator, grain));
    churn->moved.push_back(static_cast<double>(plan.steps()) / static_cast<double>(queue_pairs));
  }
}

bool MeasureChurn(const Options& options) {
  constexpr double kNicMbps = 200e3;
  Shape shapes[] = {
      {"8 x 8 x 32, 4 peers", {.leaves = 8, .spines = 8, .hosts_per_leaf = 32, .planes = 2}, 4},
      {"16 x 16 x 64, 4 peers", {.leaves = 16, .spines = 16, .hosts_per_leaf = 64, .planes = 2}, 4},
      {"16 x 32 x 64, 16 peers", {.leaves = 16, .spines = 32, .hosts_per_leaf = 64, .planes = 2}, 16},
      {"4 pods of 8 x 8 x 32, 8 cores a spine, 8 peers",
       {.pods = 4, .leaves = 8, .spines = 8, .cores_per_spine = 8, .hosts_per_leaf = 32, .planes = 2},
       8},
  };
  bool enough = true;
  printf(
      "the fullest link / the perfectly even load after each arrival or departure, %d workloads of %d "
      "events\n",
      options.workloads, options.events);
  printf("%-48s %8s | %17s | %25s | %15s\n", "leaves x spines x NICs a pair", "events", "as it comes",
         "evened: median, worst", "moved: median, worst");
  for (Shape& shape : shapes) {
    shape.spec.host_mbps = shape.spec.spine_mbps = shape.spec.core_mbps = kNicMbps;
    Churn churn;
    for (int seed = 1; seed <= options.workloads; ++seed) {
      RunWorkload(shape, options, static_cast<unsigned>(seed), &churn);
    }
    const auto worst = [](const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()); };
    const auto missed =
        std::count_if(churn.after.begin(), churn.after.end(), [](double of) { return of > kEnough; });
    printf("%-48s %8zu | %7.3f %7.3f   | %7.3f %7.3f (%ld over) | %6.2f %% %6.2f %%\n", shape.name,
           churn.after.size(), c4::Median(churn.before), worst(churn.before), c4::Median(churn.after),
           worst(churn.after), static_cast<long>(missed), 100 * c4::Median(churn.moved),
           100 * worst(churn.moved));
    fflush(stdout);
    enough &= missed == 0;
  }
  return enough;
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, int* value) {
      if (strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      *value = atoi(argv[++i]);
      return *value > 0;
    };
    if (options->what.empty() && argv[i][0] != '-') {
      options->what = argv[i];
    } else if (!number("--nics", &options->nics) && !number("--tiers", &options->tiers) &&
               !number("--links", &options->links) && !number("--workloads", &options->workloads) &&
               !number("--events", &options->events)) {
      return false;
    }
  }
  return (options->what == "repair" || options->what == "churn") && options->nics >= 64 &&
         (options->tiers == 2 || options->tiers == 3);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fprintf(stderr,
            "usage: path_replan repair|churn [--nics N] [--tiers 2|3] [--links N] [--workloads N] [--events "
            "N]\n");
    return 2;
  }
  return (options.what == "repair" ? MeasureRepair(options) : MeasureChurn(options)) ? 0 : 1;
}
