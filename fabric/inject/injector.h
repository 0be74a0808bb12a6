// Puts faults into a running job and takes them out again, and says exactly what it did.
//
// One object a job; its methods are for one thread (jitter runs on a thread of its own, which the object
// joins). The job is looked up anew for every fault, so that it may have been started again in between. The
// destructor ends jitter and heals nothing else: what is in force then stays until Heal or HealJob.
// Random choices depend on the seed, the job's ranks and, for links, on which of them carry its data.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fabric/emulator/fabric.h"
#include "fabric/inject/fault.h"
#include "fabric/inject/flows.h"
#include "fabric/inject/job_view.h"

namespace c4::fabric {

// A fault that is in force.
struct Applied {
  int id = 0;
  Injection injection;     // with the target and the amounts that were chosen
  double unix_s = 0;       // just before it took effect
  double done_unix_s = 0;  // when all of it was in force
  int incarnation = 0;
  std::string fabric;      // empty: over loopback
  std::vector<int> ranks;  // concerned: the rank, or those of the host
  uid_t owner = 0;         // of the job, and so of its processes
  std::vector<pid_t> pids;
  std::vector<int> hosts;
  std::vector<Link> links;
  std::vector<Flow> flows;  // whose data or acknowledgements take one of the links
};

// One line for people; one JSON document (docs/inject.md), which is also the line of the plan file.
std::string AppliedText(const Applied& applied);
std::string AppliedJson(const Applied& applied);
std::string HealedText(const Applied& applied, double unix_s);
std::string HealedJson(const Applied& applied, double unix_s);

class Injector {
 public:
  struct Options {
    std::string base_dir;  // as FindJob
    std::string job;
    uint64_t seed = 1;
    std::string plan_path;  // what is done is appended here, a line each; empty: nowhere
  };

  explicit Injector(Options options);
  ~Injector();
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  // Whether it could be injected into the job as it runs now: its target above all. Changes nothing.
  absl::Status Check(const Injection& injection);
  // Returns when it is in force; `id` names it for Heal.
  absl::StatusOr<Applied> Inject(const Injection& injection);
  absl::Status Heal(int id);
  // Everything that this object injected and has not healed, the newest first.
  absl::Status HealAll();

  struct Event {
    bool healed = false;
    Applied applied;
    double unix_s = 0;
  };
  using Report = std::function<void(const Event& event)>;
  // Sleeps for that long; false: give up (everything is healed then).
  using Sleep = std::function<bool(double seconds)>;
  // Plays a schedule to its end: injects and heals when it is time. What has no for_s stays. Checks every
  // entry before the first is played.
  absl::Status Play(const std::vector<Injection>& schedule, const Report& report, const Sleep& sleep);

 private:
  struct Choice;
  class Jitter;

  absl::StatusOr<Choice> Choose(const Injection& injection, bool look_at_traffic);
  absl::Status ChooseRank(Choice* choice);
  absl::Status ChooseHost(Choice* choice);
  absl::Status ChooseLink(Choice* choice, bool look_at_traffic);
  absl::Status Apply(Choice* choice);
  absl::Status Undo(const Applied& applied);
  absl::Status AppendPlan(const std::string& line) const;
  size_t Draw(size_t count);

  const Options options_;
  std::mt19937_64 random_;
  int last_id_ = 0;
  std::map<int, Applied> in_force_;
  std::map<int, std::unique_ptr<Jitter>> jitter_;
};

// Adds a line to a plan file.
absl::Status AppendToPlan(const std::string& path, const std::string& line);

// Heals whatever anybody injected into a job: all faults of its fabric, and all ranks and agents go on.
absl::Status HealJob(const std::string& base_dir, const std::string& job);

}  // namespace c4::fabric
