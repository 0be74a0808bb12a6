// path_allocation [--nics N] [--peers N] [--queue-pairs N] [--workloads N] [--only size|even|rates]: what the
// path master's allocator can do.
//
//   size   a full-size network is filled with connections (65,536 NICs x 16 peers x 8 queue pairs):
//   allocations
//          a second on one thread, resident memory before and after, the moves after a link has failed and
//          come back, releases a second; two tiers, and three.
//   even   seeded workloads on simulated networks: the fullest fabric link beside the perfectly even load, by
//          the allocator, by the allocator after it has evened out, and by ECMP.
//   rates  the simulator itself: max-min fair rates of all those flows.
//
// The perfectly even load is, of all leaves and directions, the most traffic that one has to carry, divided
// by its links; where all queue pairs are alike it is rounded up to whole ones, since nobody can cut one.
// Exit status 1 when a target is missed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "benchmarks/statistics.h"
#include "c4p_master/alloc/allocator.h"
#include "c4p_master/alloc/flowsim_policy.h"
#include "fabric/flowsim/clos.h"
#include "fabric/flowsim/policy.h"
#include "fabric/flowsim/rates.h"

namespace {

using c4::flowsim::Clos;
using c4::flowsim::ClosSpec;
namespace c4p = c4::c4p;

constexpr double kEnough = 1.02;
constexpr double kLeastAllocations = 100'000;
constexpr double kMostGib = 8;

struct Options {
  int nics = 65536;
  int peers = 16;
  int queue_pairs = 8;
  int workloads = 100;
  std::string only;
};

// What is refused here is a defect of this program.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "path_allocation: %s\n", std::string(status.message()).c_str());
  std::_Exit(2);
}

double ResidentGib() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
}

// The thread's CPU time: others may want the processor, too.
class Watch {
 public:
  double Seconds() const { return Now() - begin_; }

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

// 64 NICs under a pair of leaves; 64 spines. In three tiers pods of 512 NICs as in the paper.
ClosSpec FullSize(const Options& options, bool three_tiers) {
  ClosSpec spec{.spines = 64, .hosts_per_leaf = 64, .planes = 2, .host_mbps = 200e3, .spine_mbps = 200e3};
  const int leaves = std::max(2, options.nics / 64 * 2);
  spec.leaves = leaves;
  if (three_tiers) {
    spec.leaves = std::min(leaves, 16);
    spec.pods = leaves / spec.leaves;
    spec.cores_per_spine = 16;
    spec.core_mbps = 200e3;
  }
  return spec;
}

constexpr int kJobNics = 1024;

// Who talks to whom. By job: one after the other, peers within the job, its connections in random order. Else
// peers are anywhere, and all connections come in random order: the worst for the processor's caches.
std::vector<c4p::ConnectionRequest> Requests(const Options& options, const Clos& clos, bool by_job) {
  std::mt19937 random(1);
  std::vector<c4p::ConnectionRequest> requests;
  const int hosts = clos.hosts();
  requests.reserve(static_cast<size_t>(hosts) * static_cast<size_t>(options.peers));
  const int group = by_job ? std::min(kJobNics, hosts) : hosts;
  for (int first = 0; first < hosts; first += group) {
    const int size = std::min(group, hosts - first);
    const auto begin = static_cast<ptrdiff_t>(requests.size());
    for (int peer = 0; peer < options.peers && size > 1; ++peer) {
      const int distance = 1 + static_cast<int>(random() % static_cast<unsigned>(size - 1));
      for (int i = 0; i < size; ++i) {
        requests.push_back({.connection = 0,
                            .tenant = static_cast<uint32_t>((first + i) / kJobNics),
                            .from = static_cast<uint32_t>(first + i),
                            .to = static_cast<uint32_t>(first + (i + distance) % size),
                            .queue_pairs = static_cast<uint32_t>(options.queue_pairs),
                            .demand_mbps = 0,
                            .available = {}});
      }
    }
    std::shuffle(requests.begin() + begin, requests.end(), random);
  }
  for (size_t i = 0; i < requests.size(); ++i) requests[i].connection = static_cast<uint32_t>(i);
  return requests;
}

// Allocations a second.
double Fill(const std::vector<c4p::ConnectionRequest>& requests, c4p::Allocator* allocator) {
  const Watch watch;
  for (const c4p::ConnectionRequest& request : requests) Must(allocator->Allocate(request).status());
  return static_cast<double>(requests.size()) / watch.Seconds();
}

bool MeasureSize(const Options& options, bool three_tiers) {
  const Clos clos = MakeClos(FullSize(options, three_tiers));
  const std::vector<c4p::ConnectionRequest> requests = Requests(options, clos, false);
  const double before = ResidentGib();
  double by_job = 0;
  {
    const std::vector<c4p::ConnectionRequest> jobs = Requests(options, clos, true);
    const c4p::Network of_jobs = c4p::NetworkOf(clos);
    c4p::Allocator for_jobs(&of_jobs);
    by_job = Fill(jobs, &for_jobs);
  }
  c4p::Network network = c4p::NetworkOf(clos);
  c4p::Allocator allocator(&network);
  const double at_random = Fill(requests, &allocator);
  const double gib = ResidentGib() - before;
  printf("%s: %d NICs, %d leaves, %d spines: %zu connections, %zu queue pairs\n",
         three_tiers ? "three tiers" : "two tiers", clos.hosts(), clos.leaves(),
         clos.spec().pods * clos.spec().spines, requests.size(),
         requests.size() * static_cast<size_t>(options.queue_pairs));
  printf("  allocations a second: %.0f job by job, %.0f in random order\n", by_job, at_random);
  printf("  resident: %.2f GiB more than before\n", gib);

  const c4p::Link link{c4p::Tier::kLeaf, 0, 0};
  const auto carry_out = [&](const c4p::Plan& plan) {
    for (const c4p::Move& move : plan.moves) {
      Must(allocator.Apply(move));
    }
  };
  Must(network.SetUp(link, false));
  const Watch failing;
  const c4p::Plan repair = allocator.PlanRepair();
  const double plan_ms = failing.Seconds() * 1e3;
  carry_out(repair);
  fflush(stdout);
  printf("  a leaf's link fails: %zu queue pairs of %zu connections move, planned in %.1f ms\n",
         repair.steps(), repair.moves.size(), plan_ms);
  Must(network.SetUp(link, true));
  const Watch recovering;
  const c4p::Plan even = allocator.PlanEven(1000, &link);
  printf("  it comes back: %zu queue pairs move (of at most 1000), planned in %.1f ms\n", even.steps(),
         recovering.Seconds() * 1e3);
  carry_out(even);
  const Watch releasing;
  for (const c4p::ConnectionRequest& request : requests) {
    Must(allocator.Release(request.connection));
  }
  printf("  releases a second: %.0f\n", static_cast<double>(requests.size()) / releasing.Seconds());
  return by_job >= kLeastAllocations && gib <= kMostGib;
}

struct Shape {
  const char* name;
  ClosSpec spec;
  int peers;
  uint32_t queue_pairs;
  bool mixed;  // jobs ask for different rates
  int failed;  // links between leaves and spines that are down
};

// One queue pair of a workload, as the simulator sees it.
struct Traffic {
  int from;
  int to;
  uint32_t connection;
  double mbps;
};

struct Workload {
  std::vector<c4p::ConnectionRequest> requests;
  bool alike = true;
};

// Jobs of random sizes on random NICs: each a ring, its members' peers at random distances.
Workload MakeWorkload(const Shape& shape, const Clos& clos, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<uint32_t> nics(static_cast<size_t>(clos.hosts()));
  std::iota(nics.begin(), nics.end(), 0U);
  std::shuffle(nics.begin(), nics.end(), random);
  Workload workload{.requests = {}, .alike = !shape.mixed};
  uint32_t tenant = 0;
  for (size_t first = 0; first < nics.size(); ++tenant) {
    const size_t size = std::min(nics.size() - first, size_t{2} << (random() % 6));
    const double demand = shape.mixed ? 10e3 * static_cast<double>(1 + random() % 10) : 0;
    for (int peer = 0; peer < shape.peers && size > 1; ++peer) {
      const size_t distance = 1 + random() % (size - 1);
      for (size_t i = 0; i < size; ++i) {
        workload.requests.push_back({.connection = 0,
                                     .tenant = tenant,
                                     .from = nics[first + i],
                                     .to = nics[first + (i + distance) % size],
                                     .queue_pairs = shape.queue_pairs,
                                     .demand_mbps = demand,
                                     .available = {}});
      }
    }
    first += size;
  }
  std::shuffle(workload.requests.begin(), workload.requests.end(), random);
  for (uint32_t i = 0; i < workload.requests.size(); ++i) workload.requests[i].connection = i;
  return workload;
}

// The fullest link between switches, of its capacity.
double Fullest(const Clos& clos, const std::vector<double>& loads) {
  const c4::flowsim::LinkId first = clos.SpineLink(0, 0, true);
  double fullest = 0;
  for (c4::flowsim::LinkId link = first; link < clos.links(); ++link) {
    fullest = std::max(fullest, loads[link] / clos.capacities_mbps()[link]);
  }
  return fullest;
}

// What the fullest link would carry if traffic could be cut at will.
double Even(const Clos& clos, const std::vector<Traffic>& traffic, const std::vector<int>& planes,
            double alike_mbps) {
  const ClosSpec& spec = clos.spec();
  std::vector<double> leaves(static_cast<size_t>(clos.leaves()) * 2, 0);
  std::vector<double> pods(static_cast<size_t>(spec.pods) * 2, 0);
  for (size_t i = 0; i < traffic.size(); ++i) {
    const c4::flowsim::Port from{traffic[i].from, planes[i]};
    const c4::flowsim::Port to{traffic[i].to, planes[i]};
    if (clos.LeafOf(from) == clos.LeafOf(to)) continue;
    leaves[static_cast<size_t>(clos.LeafOf(from)) * 2] += traffic[i].mbps;
    leaves[static_cast<size_t>(clos.LeafOf(to)) * 2 + 1] += traffic[i].mbps;
    if (clos.PodOf(from) == clos.PodOf(to)) continue;
    pods[static_cast<size_t>(clos.PodOf(from)) * 2] += traffic[i].mbps;
    pods[static_cast<size_t>(clos.PodOf(to)) * 2 + 1] += traffic[i].mbps;
  }
  double even = 0;
  const auto over = [&](double mbps, int links, double capacity) {
    double each = mbps / links;
    if (alike_mbps > 0) each = std::ceil(each / alike_mbps - 1e-6) * alike_mbps;
    even = std::max(even, each / capacity);
  };
  for (size_t i = 0; i < leaves.size(); ++i) {
    int up = 0;
    for (int spine = 0; spine < spec.spines; ++spine) {
      up += clos.IsUp(clos.SpineLink(static_cast<int>(i / 2), spine, true)) ? 1 : 0;
    }
    over(leaves[i], up, spec.spine_mbps);
  }
  for (const double mbps : pods) {
    if (spec.pods > 1) over(mbps, spec.spines * spec.cores_per_spine, spec.core_mbps);
  }
  return even;
}

struct Evenness {
  double at_once;
  double evened;
  double ecmp;
  size_t steps;
  size_t queue_pairs;
};

Evenness MeasureEvenness(const Shape& shape, unsigned seed) {
  Clos clos = MakeClos(shape.spec);
  std::mt19937 random(seed + 1000);
  for (int i = 0; i < shape.failed; ++i) {
    clos.SetUp(clos.SpineLink(static_cast<int>(random() % static_cast<unsigned>(clos.leaves())),
                              static_cast<int>(random() % static_cast<unsigned>(shape.spec.spines)), true),
               false);
  }
  const Workload workload = MakeWorkload(shape, clos, seed);
  c4p::Network network = c4p::NetworkOf(clos);
  c4p::Allocator allocator(&network);
  for (const c4p::ConnectionRequest& request : workload.requests) {
    Must(allocator.Allocate(request).status());
  }
  std::vector<Traffic> traffic;
  std::vector<int> planes;
  const auto loads = [&] {
    traffic.clear();
    planes.clear();
    std::vector<double> sum(clos.links(), 0);
    for (const c4p::ConnectionRequest& request : workload.requests) {
      const double mbps = static_cast<double>(allocator.CountedKbps(request.connection)) / 1000;
      const absl::StatusOr<c4p::Allocation> now = allocator.Get(request.connection);
      Must(now.status());
      for (const c4p::Place& place : now->queue_pairs) {
        for (const auto link : SimulatedPath(clos, request.from, request.to, place)) sum[link] += mbps;
        traffic.push_back(
            {static_cast<int>(request.from), static_cast<int>(request.to), request.connection, mbps});
        planes.push_back(static_cast<int>(place.plane));
      }
    }
    return sum;
  };
  Evenness result{};
  const double at_once = Fullest(clos, loads());
  const double alike = workload.alike ? static_cast<double>(allocator.CountedKbps(0)) / 1000 : 0;
  const double even = Even(clos, traffic, planes, alike);
  const c4p::Plan plan = allocator.PlanEven(SIZE_MAX);
  for (const c4p::Move& move : plan.moves) {
    Must(allocator.Apply(move));
  }
  result.steps = plan.steps();
  result.queue_pairs = traffic.size();
  result.evened = Fullest(clos, loads()) / even;
  result.at_once = at_once / even;
  // ECMP: the same queue pairs, from ports as the kernel gives them, planes in turn.
  c4::flowsim::Ecmp ecmp(seed);
  std::vector<double> sum(clos.links(), 0);
  for (size_t i = 0; i < traffic.size(); ++i) {
    const c4::flowsim::Flow flow{.from = {traffic[i].from, planes[i]},
                                 .to = {traffic[i].to, planes[i]},
                                 .source_port = static_cast<uint16_t>(49152 + random() % 16384)};
    const int way = ecmp.Choose(clos, flow);
    for (const auto link : clos.PathOf(flow.from, flow.to, way)) sum[link] += traffic[i].mbps;
  }
  result.ecmp = Fullest(clos, sum) / even;
  return result;
}

bool MeasureAllEvenness(const Options& options) {
  const double nic = 200e3;
  const Shape shapes[] = {
      {"8 x 8 x 32, 8 queue pairs, 1 peer",
       {.leaves = 8, .spines = 8, .hosts_per_leaf = 32, .planes = 2},
       1,
       8,
       false,
       0},
      {"16 x 16 x 64, 8 queue pairs, 4 peers",
       {.leaves = 16, .spines = 16, .hosts_per_leaf = 64, .planes = 2},
       4,
       8,
       false,
       0},
      {"the same, mixed rates",
       {.leaves = 16, .spines = 16, .hosts_per_leaf = 64, .planes = 2},
       4,
       8,
       true,
       0},
      {"the same, 3 links down",
       {.leaves = 16, .spines = 16, .hosts_per_leaf = 64, .planes = 2},
       4,
       8,
       false,
       3},
      {"32 x 64 x 64, 8 queue pairs, 16 peers",
       {.leaves = 32, .spines = 64, .hosts_per_leaf = 64, .planes = 2},
       16,
       8,
       false,
       0},
      {"4 pods of 8 x 8 x 32, 8 cores a spine, 8 peers",
       {.pods = 4, .leaves = 8, .spines = 8, .cores_per_spine = 8, .hosts_per_leaf = 32, .planes = 2},
       8,
       8,
       false,
       0},
  };
  printf("the fullest link / the perfectly even load, %d seeds: median, worst\n", options.workloads);
  printf("%-50s %15s %15s %12s %15s\n", "leaves x spines x NICs a pair", "at once", "evened out", "moved",
         "ECMP");
  bool enough = true;
  for (Shape shape : shapes) {
    shape.spec.host_mbps = nic;
    shape.spec.spine_mbps = nic;
    shape.spec.core_mbps = nic;
    std::vector<double> at_once, evened, moved, ecmp;
    for (int seed = 1; seed <= options.workloads; ++seed) {
      const Evenness one = MeasureEvenness(shape, static_cast<unsigned>(seed));
      at_once.push_back(one.at_once);
      evened.push_back(one.evened);
      moved.push_back(100.0 * static_cast<double>(one.steps) / static_cast<double>(one.queue_pairs));
      ecmp.push_back(one.ecmp);
    }
    const auto worst = [](const std::vector<double>& of) { return *std::max_element(of.begin(), of.end()); };
    printf("%-50s %7.3f %7.3f %7.3f %7.3f %10.1f %% %7.3f %7.3f\n", shape.name, c4::Median(at_once),
           worst(at_once), c4::Median(evened), worst(evened), c4::Median(moved), c4::Median(ecmp),
           worst(ecmp));
    fflush(stdout);
    enough &= worst(evened) <= kEnough;
  }
  return enough;
}

// Of this process, ever.
double MostResidentGib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return atof(line.c_str() + 6) / (1 << 20);
  }
  return 0;
}

bool MeasureRates(const Options& options, bool three_tiers) {
  const Clos clos = MakeClos(FullSize(options, three_tiers));
  std::mt19937 random(1);
  c4::flowsim::FlowTable table;
  {
    c4::flowsim::Ecmp ecmp(1);
    for (const c4p::ConnectionRequest& request : Requests(options, clos, false)) {
      for (int i = 0; i < options.queue_pairs; ++i) {
        const c4::flowsim::Flow flow{.from = {static_cast<int>(request.from), i % 2},
                                     .to = {static_cast<int>(request.to), i % 2},
                                     .source_port = static_cast<uint16_t>(random() % 65536)};
        // Every second one wants less than the network may have for it.
        const double wants =
            random() % 2 == 0 ? c4::flowsim::kAllItCanGet : static_cast<double>(random() % 4000);
        table.Add(clos.PathOf(flow.from, flow.to, ecmp.Choose(clos, flow)), wants);
      }
    }
  }
  const Watch watch;
  const std::vector<double> rates = MaxMinRates(table, CapacitiesOf(clos));
  const double seconds = watch.Seconds();
  printf("max-min fair rates, %s, %zu flows over %u links: %.1f s; resident at most %.2f GiB\n",
         three_tiers ? "three tiers" : "two tiers", table.size(), clos.links(), seconds, MostResidentGib());
  return seconds < 60 && MostResidentGib() < kMostGib;
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const auto number = [&](const char* name, int* value) {
      if (strcmp(argv[i], name) != 0 || i + 1 >= argc) return false;
      *value = atoi(argv[++i]);
      return *value > 0;
    };
    if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      options->only = argv[++i];
    } else if (!number("--nics", &options->nics) && !number("--peers", &options->peers) &&
               !number("--queue-pairs", &options->queue_pairs) &&
               !number("--workloads", &options->workloads)) {
      return false;
    }
  }
  return options->nics >= 64;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fprintf(stderr,
            "usage: path_allocation [--nics N] [--peers N] [--queue-pairs N] [--workloads N] "
            "[--only size|even|rates]\n");
    return 2;
  }
  bool enough = true;
  const auto wanted = [&](const char* what) { return options.only.empty() || options.only == what; };
  if (wanted("size")) {
    enough &= MeasureSize(options, false);
    enough &= MeasureSize(options, true);
  }
  if (wanted("even")) enough &= MeasureAllEvenness(options);
  if (wanted("rates")) {
    enough &= MeasureRates(options, false);
    enough &= MeasureRates(options, true);
  }
  return enough ? 0 : 1;
}
