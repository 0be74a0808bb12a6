// How much a job's stragglers cost, and which operations, workers, stages and steps they are: the metrics of
// the what-if paper, sections 3.3, 4 and 5, each from a replay of the job under a what-if scenario.
//
// A slow-down "of" something is T with its recorded durations and everything else idealised, over T with
// everything idealised; T is the mean step time. Computed with the threads that are asked for; the results
// are plain values. Seconds; ratios without unit.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/whatif/durations.h"
#include "analysis/whatif/graph.h"
#include "analysis/whatif/scenario.h"
#include "analysis/whatif/simulator.h"
#include "analysis/whatif/trace.h"

namespace c4::whatif {

// A trace with all that every question needs of it.
struct Job {
  Trace trace;
  Graph graph;
  Durations durations;
};

// The trace's notes are joined by those of the measurement.
absl::StatusOr<Job> MakeJob(Trace trace);

// A straggling job (section 4.2) and one whose replay is too far from what was recorded (section 6).
inline constexpr double kStraggling = 1.1;
inline constexpr double kDoubtfulDiscrepancy = 0.05;

struct Slowdown {
  double overall = 1;
  std::vector<double> by_step;
};

// How much of the slow-down goes when some are fixed (`removed`), and how much comes when they alone straggle
// (`added`); 1: all of it. Absent where there is no slow-down.
struct Share {
  std::optional<double> removed;
  std::optional<double> added;
  double step_time_removed_s = 0;
  double step_time_added_s = 0;
};

struct Analysis {
  double slowdown = 1;              // S
  double step_time_s = 0;           // T, of the recorded durations, without launch delays
  double step_time_ideal_s = 0;     // T_ideal
  double step_time_measured_s = 0;  // from the trace
  double discrepancy = 0;           // |T - measured| / measured
  double launch_slowdown = 1;       // measured / T

  std::vector<double> measured_s;  // per step
  std::vector<double> simulated_s;
  std::vector<double> ideal_s;
  std::vector<double> slowdown_by_step;
  std::vector<double> launch_by_step;

  std::vector<size_t> type_groups;  // those that the job has
  std::vector<Slowdown> by_type;    // the same order
  std::vector<Slowdown> by_dp;
  std::vector<Slowdown> by_stage;
  std::vector<Slowdown> by_worker;       // exact; [stage * dp_size + dp]
  std::vector<double> by_worker_approx;  // min of its rank's and its stage's

  std::vector<size_t> slowest_workers;  // the 3 % that M_W fixes; indices as in by_worker
  Share m_w;
  Share m_s;  // 0 of a job without pipeline parallelism

  std::vector<std::optional<double>> correlation_by_stage;  // of forward and backward computation
  std::optional<double> correlation;                        // of all
  size_t correlation_pairs = 0;

  double speedup_if_pp_comm_zero = 1;
  double speedup_if_dp_comm_zero = 1;

  double waste() const { return 1 - 1 / slowdown; }
};

// InvalidArgument when every operation takes no time.
absl::StatusOr<Analysis> Analyse(const Job& job, int threads);

// A question of the user's own.
struct Answer {
  double step_time_s = 0;
  double slowdown = 1;          // over the ideal
  double speedup = 1;           // over the recorded durations
  std::optional<double> share;  // of the slow-down: removed by fixing, or left by keeping
};
Answer Ask(const Job& job, const Analysis& analysis, Scenario::Chosen mode,
           const std::vector<Selection>& chosen, int threads);

Scenario KeepOnly(const Job& job, std::vector<Selection> chosen);
Scenario FixOnly(const Job& job, std::vector<Selection> chosen);

}  // namespace c4::whatif
