// What others than C4's agents see of a simulated job's incident, for benchmarks/court.cc: PyTorch's Flight
// Recorder of each rank, NCCL's RAS, and NCCL's Inspector. Deterministic for a shape, a fault and a seed. One
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/job_trial.h"
#include "fabric/jobsim/physics.h"
#include "nlohmann/json.hpp"

namespace c4::benchmarks {

// Torch's watchdog gives a collective up after ten minutes, and has the dumps written then.
inline constexpr int64_t kWatchdogNs = 600 * jobsim::kSecondNs;

class CourtRecords {
 public:
  CourtRecords(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed);

  // The job goes on no more: a watchdog sees it.
  bool stands_still() const { return stands_still_; }
  // Ranks that may be named: all that the fault is at. Empty for what is nobody's.
  const std::vector<uint32_t>& accepted() const { return accepted_; }
  // As torch's dump, version 2.10, when the watchdog has it written. null: the process cannot write any more.
  nlohmann::json FlightRecorder(uint32_t rank) const;

 private:
  struct Entry {
    const jobsim::Instruction* what = nullptr;
    uint64_t record = 0;    // of all that the rank has called
    uint64_t sequence = 0;  // among the group's collectives, or its sends and receives
    int64_t called_ns = 0;
    uint8_t state = 0;  // called, started, finished
    bool odd = false;
  };

  void Run(int64_t until_ns);

  jobsim::Physics physics_;
  const int64_t until_ns_;
  bool stands_still_ = false;
  std::vector<uint32_t> accepted_;
  std::vector<std::vector<Entry>> entries_;  // by rank; the newest
};

// The master's own logic over what one of these says of the job, once a second for ten minutes after the
// fault.
enum class CourtSource : uint8_t { kRas, kInspector };
JobTrial RunSourceTrial(const jobsim::Shape& shape, const jobsim::Fault& fault, uint64_t seed,
                        CourtSource source);

}  // namespace c4::benchmarks
