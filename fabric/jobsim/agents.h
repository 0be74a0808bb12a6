// What the agents of a simulated job's nodes would send: one batch a node, whole, at each report. Nodes read
// their ranks at moments of their own, on clocks of their own; agents restart, stall and vanish as the plan
// says. Nothing here knows of faults of the job but by what they did to its physics.
//
// Deterministic. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health.h"
#include "c4a/proc_reader.h"
#include "fabric/jobsim/counters.h"
#include "fabric/jobsim/life.h"
#include "fabric/jobsim/physics.h"

namespace c4::jobsim {

class Agents {
 public:
  // The master's clocks read `start_ns` and `start_unix_ns` when the job begins.
  Agents(JobPlan plan, int64_t start_ns, int64_t start_unix_ns);

  // What arrives at the master at that moment. REQUIRES: does not go back. Advances the physics.
  std::vector<v1::TelemetryBatch> Report(int64_t at_ns);

  // Of the life that began last; nullptr before the first.
  const Physics* physics() const { return lives_.empty() ? nullptr : lives_.back().physics.get(); }

 private:
  struct Process {
    explicit Process(RankCounters none) : counters(std::move(none)) {}
    RankCounters counters;
    agent::HealthTracker health;
    int64_t seen_ns = 0;  // on the life's clock
    uint64_t cpu_ns = 0;
    uint64_t io_bytes = 0;
    bool gone = false;
    int64_t gone_ns = kNeverNs;
  };
  struct Running {
    const Life* life = nullptr;
    std::unique_ptr<Physics> physics;
    std::vector<std::unique_ptr<Process>> processes;  // by rank; none before it started
    std::vector<std::vector<uint32_t>> ranks_on;      // by host
    uint32_t gone = 0;                                // of them
    uint32_t number = 0;
  };
  struct Host {
    std::string name;
    std::string boot_id;
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    int64_t phase_ns = 0;    // before the report arrives
    int64_t clock_ns = 0;    // its monotonic clock when the job begins
    int64_t stepped_ns = 0;  // its Unix clock, against the truth
    int64_t silent_to_ns = 0;
    size_t next_event = 0;
    std::vector<AgentEvent> events;  // in order of time
    bool gone = false;
  };

  void Begin(int64_t at_ns);
  // False: nothing is sent.
  bool LiveThrough(int64_t at_ns, uint32_t number, Host* host);
  void ForgetAll(uint32_t host, int64_t at_ns);
  void AddProcess(uint32_t rank, int64_t at_ns, const Host& host, Running* running,
                  v1::TelemetryBatch* batch);
  void Look(const Physics& physics, uint32_t rank, int64_t at_ns, Process* process) const;

  const JobPlan plan_;
  const int64_t start_ns_;
  const int64_t start_unix_ns_;
  std::vector<Host> hosts_;
  std::vector<Running> lives_;
};

}  // namespace c4::jobsim
