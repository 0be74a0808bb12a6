// The lives of a job, from its first start over elastic restarts to its end, and what its nodes' agents go
// through meanwhile. Each life has processes, communicators and counters of its own; launchers may number
// them from 0 again.
//
// Plain values; no threads.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/jobsim/job.h"

namespace c4::jobsim {

struct Life {
  Shape shape;
  Fault fault;  // its time counts from the life's start
  int64_t start_ns = 0;
  uint64_t seed = 0;
  uint32_t incarnation = 0;
  std::vector<uint32_t> hosts;  // by node of the shape
};

enum class AgentEventKind { kRestart, kStall, kClockStep, kGone };

struct AgentEvent {
  AgentEventKind kind = AgentEventKind::kRestart;
  uint32_t host = 0;
  int64_t at_ns = 0;
  int64_t lasts_ns = 0;  // nothing is sent meanwhile; of kGone: for ever
  int64_t step_ns = 0;   // of the host's clock
};

struct JobPlan {
  std::vector<Life> lives;  // in order of time
  std::vector<AgentEvent> agents;
  uint32_t hosts = 0;
  int64_t report_ns = 250 * kMillisecondNs;
};

// One life, with its fault if there is one, and what the fault means for agents.
JobPlan PlanOf(const Shape& shape, const Fault& fault, uint64_t seed);

// A job that is well for so long: agents restart and stall, clocks step, and now and then the job is ended
// from outside and begins again, sometimes on fewer nodes. `busy`: every some minutes, else as on a real day.
JobPlan HealthyPlan(const Shape& shape, bool busy, int64_t lasts_ns, uint64_t seed);

}  // namespace c4::jobsim
