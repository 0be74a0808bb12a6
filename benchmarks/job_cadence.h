// How closely a simulated job is watched: four reports a second around all that may fool the master, one a
// second elsewhere, and of long stretches of nothing but training a sample (docs/jobsim.md has the rule).
// Pure logic; one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fabric/jobsim/life.h"
#include "fabric/jobsim/physics.h"

namespace c4::benchmarks {

inline constexpr int64_t kCoarseNs = jobsim::kSecondNs;

// Of a job with one fault.
struct FaultCadence {
  int64_t fine_ns = 250 * jobsim::kMillisecondNs;
  int64_t ready_ns = 0;  // the job begins to train
  int64_t fault_ns = jobsim::kNeverNs;
  bool harmless = false;      // the fault is of agents and clocks
  bool stands_still = false;  // it shows by that
  double limit_s = 0;

  // The time to the next report; `shown_ns`: since when the fault shows.
  int64_t Next(int64_t at_ns, int64_t shown_ns) const;
};

// Of a job that is well.
class HealthyCadence {
 public:
  // The job is watched for `lasts_ns`.
  HealthyCadence(const jobsim::JobPlan& plan, int64_t lasts_ns);

  struct Step {
    bool mark = false;    // a sample of the rhythm begins (jobsim::Agents::Mark)
    uint64_t skips = 0;   // steps of training that are skipped now
    int64_t wait_ns = 0;  // to the next report
  };
  // `last_event_ns`: when something last happened on any GPU.
  Step Next(int64_t at_ns, const jobsim::Rhythm& rhythm, int64_t last_event_ns);

 private:
  bool IsNear(int64_t at_ns, int64_t before_ns, int64_t after_ns) const;
  int64_t NextPlanned(int64_t at_ns) const;

  const int64_t fine_ns_;
  std::vector<std::pair<int64_t, int64_t>>
      planned_;  // from and to, of what the plan has for agents and lives
  bool marked_ = false;
  int64_t sample_to_ns_ = 0;
};

}  // namespace c4::benchmarks
