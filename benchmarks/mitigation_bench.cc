// What the decisions of a mitigation cost: S2 by our exact solver, and beside it by a generic one (GLPK's
// branch and cut, where the program was built with it) on the very same numbers; S3, how long a plan takes
// and what it removes of a slow-down in the model.
//
// `mitigation_bench [SECONDS]`: the generic solver gets SECONDS (60) for each size.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "analysis/mitigation/micro_batches.h"
#include "analysis/mitigation/placement_search.h"

#ifdef C4_HAVE_GLPK
#include <glpk.h>
#endif

namespace c4::mitigation {
namespace {

double MsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

// Groups that scatter by 2 %, a tenth of them slow.
std::vector<double> Times(size_t groups) {
  std::mt19937_64 random(groups);
  std::normal_distribution<> scatter(1, 0.02);
  std::uniform_real_distribution<> unit(0, 1);
  std::vector<double> times_s(groups);
  for (double& time_s : times_s) time_s = scatter(random) * (unit(random) < 0.1 ? 1.2 + unit(random) : 1);
  return times_s;
}

struct Measured {
  double median_ms = 0;
  double worst_ms = 0;
};

Measured Own(const std::vector<double>& times_s, int64_t micro_batches, double* iteration_s) {
  constexpr int kRuns = 51;
  std::vector<double> ms;
  for (int run = 0; run < kRuns; ++run) {
    ms.push_back(MsOf([&] { *iteration_s = DistributeMicroBatches(times_s, micro_batches)->iteration_s; }));
  }
  std::sort(ms.begin(), ms.end());
  return {ms[kRuns / 2], ms.back()};
}

#ifdef C4_HAVE_GLPK
// minimise T, sum of m = M, m[i] * t[i] <= T, m integer and at least 1.
double Generic(const std::vector<double>& times_s, int64_t micro_batches, int limit_ms, bool* optimal) {
  glp_term_out(GLP_OFF);
  const int groups = static_cast<int>(times_s.size());
  glp_prob* const problem = glp_create_prob();
  glp_set_obj_dir(problem, GLP_MIN);
  glp_add_cols(problem, groups + 1);
  glp_add_rows(problem, groups + 1);
  const int slowest = groups + 1;
  glp_set_col_bnds(problem, slowest, GLP_LO, 0, 0);
  glp_set_obj_coef(problem, slowest, 1);
  std::vector<int> rows = {0}, columns = {0};
  std::vector<double> values = {0};
  const auto add = [&](int row, int column, double value) {
    rows.push_back(row);
    columns.push_back(column);
    values.push_back(value);
  };
  for (int i = 1; i <= groups; ++i) {
    glp_set_col_kind(problem, i, GLP_IV);
    glp_set_col_bnds(problem, i, GLP_LO, 1, 0);
    glp_set_row_bnds(problem, i, GLP_UP, 0, 0);
    add(i, i, times_s[static_cast<size_t>(i - 1)]);
    add(i, slowest, -1);
    add(groups + 1, i, 1);
  }
  const auto total = static_cast<double>(micro_batches);
  glp_set_row_bnds(problem, groups + 1, GLP_FX, total, total);
  glp_load_matrix(problem, static_cast<int>(rows.size()) - 1, rows.data(), columns.data(), values.data());
  glp_iocp options;
  glp_init_iocp(&options);
  options.presolve = GLP_ON;
  options.tm_lim = limit_ms;
  *optimal = glp_intopt(problem, &options) == 0 && glp_mip_status(problem) == GLP_OPT;
  const double found_s = glp_mip_obj_val(problem);
  glp_delete_prob(problem);
  return found_s;
}
#endif

void Row(size_t groups, int64_t a_group, int limit_ms) {
  const std::vector<double> times_s = Times(groups);
  const auto micro_batches = static_cast<int64_t>(groups) * a_group;
  double own_s = 0;
  const Measured own = Own(times_s, micro_batches, &own_s);
  printf("%6zu groups, %7ld micro-batches: own %8.3f ms (worst of 51 %8.3f), slowest group %.6f s", groups,
         static_cast<long>(micro_batches), own.median_ms, own.worst_ms, own_s);
#ifdef C4_HAVE_GLPK
  if (limit_ms > 0) {
    bool optimal = false;
    double generic_s = 0;
    const double ms = MsOf([&] { generic_s = Generic(times_s, micro_batches, limit_ms, &optimal); });
    printf("; GLPK %10.1f ms, %.6f s%s", ms, generic_s, optimal ? "" : " (not proved within its time)");
  }
#else
  (void)limit_ms;
#endif
  printf("\n");
  fflush(stdout);
}

// About 13 billion parameters over `stages` stages of eight GPUs each, a NIC of 400 Gbit/s a GPU.
PlacedJob Job(int groups, int stages, int64_t micro_batches) {
  PlacedJob job;
  job.groups = groups;
  job.stages.assign(static_cast<size_t>(stages), {16e-3 / stages, 32e-3 / stages, 3.2e9 / stages});
  job.micro_batches.assign(static_cast<size_t>(groups), micro_batches);
  job.activation_bytes = 20e6;
  job.state_bytes = 24e9 / stages;
  job.node_bytes_per_s = 50e9;
  job.inner_bytes_per_s = 450e9;
  job.latency_s = 5e-6;
  return job;
}

void PlanTime(const char* what, const PlacedJob& job) {
  PlacementPlan plan;
  const double ms = MsOf([&] { plan = *FindPlacement(job, UsualPlacement(job)); });
  printf(
      "%5d nodes, %2zu stages, %-28s %8.1f ms, %7llu placements, %.4f -> %.4f s (healthy %.4f), %zu moves\n",
      job.nodes(), job.stages.size(), what, ms, static_cast<unsigned long long>(plan.tried), plan.before_s,
      plan.after_s, plan.healthy_s, plan.moves.size());
  fflush(stdout);
}

void PlanTimes() {
  printf("\nS3: how long a plan takes\n");
  for (const int stages : {4, 8, 16}) {
    const int groups = 1024 / stages;
    PlacedJob job = Job(groups, stages, 32);
    job.slow_links = {{5, 6, 0.1}};
    PlanTime("one congested link", job);
    job.slow_links.clear();
    job.node_share.assign(1024, 1);
    job.node_share[300] = 0.2;
    PlanTime("one congested NIC", job);
    job.node_share.clear();
    job.compute_factor.assign(1024, 1);
    for (size_t i = 0; i < 16; ++i) job.compute_factor[i * 61] = 1.3 + 0.05 * static_cast<double>(i);
    PlanTime("16 slow nodes", job);
    job.slow_links = {{5, 6, 0.1}, {400, 401, 0.3}, {401, 402, 0.3}};
    PlanTime("16 slow nodes, 3 links", job);
  }
}

// What is removed of the slow-down by one congested link or NIC, over all of them that slow the job down.
void Removed(const char* what, int stages, double share, bool nic, int places_per_node) {
  const int groups = 16 / stages;
  PlacedJob job = Job(groups, stages, 8);
  job.places_per_node = places_per_node;
  const Placement now = places_per_node > 1 ? PipelinePlacement(job) : UsualPlacement(job);
  double sum = 0, least = 1, slow = 0;
  int count = 0;
  for (int node = 0; node < job.nodes(); ++node) {
    for (int other = nic ? node : node + 1; other < (nic ? node + 1 : job.nodes()); ++other) {
      job.node_share.clear();
      job.slow_links.clear();
      if (nic) {
        job.node_share.assign(static_cast<size_t>(job.nodes()), 1);
        job.node_share[static_cast<size_t>(node)] = share;
      } else {
        job.slow_links = {{node, other, share}};
      }
      const PlacementPlan plan = *FindPlacement(job, now);
      if (plan.before_s < 1.02 * plan.healthy_s) continue;
      sum += plan.Removed();
      least = std::min(least, plan.Removed());
      slow += plan.before_s / plan.healthy_s;
      ++count;
    }
  }
  if (count == 0) return;
  printf(
      "%2d stages, %-34s %4.2f of its speed: %3d that slow the job down, to %.2f times; removed %5.1f %%, "
      "least %5.1f %%\n",
      stages, what, share, count, slow / count, 100 * sum / count, 100 * least);
  fflush(stdout);
}

void AllRemoved() {
  printf("\nS3: what goes away in the model\n");
  for (const int stages : {4, 8}) {
    for (const double share : {0.5, 0.25, 0.1, 0.05}) {
      Removed("16 nodes of one, a link at", stages, share, false, 1);
      Removed("16 nodes of one, a NIC at", stages, share, true, 1);
      Removed("2 nodes of eight, their link at", stages, share, false, 8);
    }
  }
}

int Run(double limit_s) {
  const int limit_ms = static_cast<int>(1000 * limit_s);
  printf("S2: micro-batches of data-parallel groups, the slowest done as early as can be\n");
  for (const size_t groups : {4u, 16u, 64u, 512u}) Row(groups, 8, limit_ms);
  Row(512, 64, 0);
  Row(16384, 8, 0);
  Row(16384, 64, 0);
#ifndef C4_HAVE_GLPK
  printf("built without GLPK: no generic solver beside it\n");
#endif
  PlanTimes();
  AllRemoved();
  return 0;
}

}  // namespace
}  // namespace c4::mitigation

int main(int argc, char** argv) {
  const double limit_s = argc > 1 ? atof(argv[1]) : 60;
  if (argc > 2 || limit_s <= 0 || limit_s > 3600) {
    fprintf(stderr, "usage: mitigation_bench [SECONDS]: how long the generic solver may take for a size\n");
    return 64;
  }
  return c4::mitigation::Run(limit_s);
}
