// What the agents of a simulated job's nodes would send: one whole batch a node at each report, and the
// batch before it, so that a caller can send changes as agents do (c4a/batch_changes.h). Nodes read their
// ranks at moments of their own, on clocks of their own. Agents restart, stall and vanish as the plan says.
// Faults are known here only by what they did to the job's physics.
//
// Deterministic. One thread.
#pragma once

#include <array>
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
#include "fabric/jobsim/report.h"

namespace c4::jobsim {

// What one agent has to tell. Valid until the report after the next.
struct Told {
  v1::TelemetryBatch* batch = nullptr;
  const v1::TelemetryBatch* before = nullptr;  // its last one; nullptr: it has begun anew
};

class Agents {
 public:
  // The master's clocks read `start_ns` and `start_unix_ns` when the job begins.
  Agents(JobPlan plan, int64_t start_ns, int64_t start_unix_ns);

  // What arrives at the master at that moment. REQUIRES: does not go back, nor on by more than some seconds
  // but by Skip: processes are looked at as often. Advances the physics.
  const std::vector<Told>& Report(int64_t at_ns);

  // How far the only life is from all that is no training step; all 0 where more than one is under way.
  Rhythm rhythm() const;
  // When something last happened on any GPU of the life that began last.
  int64_t last_event_ns() const;
  // From here on, what a step adds is looked at for Skip.
  void Mark();
  // As if so many steps more had been made and nobody had reported (Physics::Skip). The time that they took,
  // which is over since the last report. REQUIRES: Mark while that rhythm lasted, and nothing that the plan
  // has in that time.
  int64_t Skip(uint64_t steps);
  const JobPlan& plan() const { return plan_; }
  int64_t at_ns() const { return at_ns_; }

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
    uint64_t seen_steps = 0;
    int64_t mark_ns = 0;
    uint64_t mark_cpu_ns = 0;
    bool gone = false;
    int64_t gone_ns = kNeverNs;
  };
  struct Running {
    const Life* life = nullptr;
    std::unique_ptr<Physics> physics;
    std::unique_ptr<Reporter> reporter;
    std::vector<std::unique_ptr<Process>> processes;  // by rank; none before it started
    std::vector<std::vector<uint32_t>> ranks_on;      // by host
    uint32_t gone = 0;                                // of them
    uint32_t number = 0;
  };
  using Who = std::pair<uint32_t, uint32_t>;  // life and rank
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
    // Written over in turn.
    struct Buffer {
      v1::TelemetryBatch batch;
      std::vector<Who> who;  // of its processes
    };
    std::array<Buffer, 2> buffers;
    size_t turn = 0;
    bool has_before = false;
  };

  void Begin(int64_t at_ns);
  // False: nothing is sent.
  bool LiveThrough(int64_t at_ns, uint32_t number, Host* host);
  void ForgetAll(uint32_t host, int64_t at_ns);
  // False: it is not told of.
  bool Follow(uint32_t rank, int64_t at_ns, Running* running);
  void FillProcess(uint32_t rank, int64_t at_ns, const Host& host, Running* running,
                   v1::ProcessReport* report);
  static uint32_t PidOf(const Running& running, uint32_t rank);
  void FillHardware(int64_t read_ns, v1::TelemetryBatch* batch) const;
  void FillBatch(uint32_t number, int64_t read_ns, Host* host);
  int OnlyOne() const;
  bool IsOver(const Running& running) const;
  void Look(const Physics& physics, uint32_t rank, int64_t at_ns, Process* process) const;

  const JobPlan plan_;
  const int64_t start_ns_;
  const int64_t start_unix_ns_;
  std::vector<Host> hosts_;
  std::vector<Running> lives_;
  std::vector<Told> told_;
  std::vector<Who> who_;
  int64_t at_ns_ = 0;
};

}  // namespace c4::jobsim
