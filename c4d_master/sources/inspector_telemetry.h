// What NCCL's Inspector says, as the telemetry that agents would send of it: of each process the time that it
// spent in collectives, and what these took, so that the master's own logic tells who is late and which
// communicators have become slow. Inspector writes of collectives that have finished. Of what has not it says
// nothing, so no counters are told by which a hang would be judged.
//
// Between two looks of its own Inspector writes of the last collective of a communicator only. Those before
// it are known by their numbers, and are taken to have lasted as long. Times are told kInspectorLagNs late,
// since a collective is known when it has ended.
//
// One thread; no errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/interval_union.h"
#include "c4/v1/telemetry.pb.h"
#include "c4d_master/job_state.h"
#include "c4d_master/sources/inspector_record.h"

namespace c4::c4d {

inline constexpr int64_t kInspectorLagNs = 5 * kSecondNs;
// Of a process that has written nothing for so long nothing is told any more. Where another one has begun on
// its host since, that takes 10 s.
inline constexpr int64_t kInspectorForgottenNs = 600 * kSecondNs;

class InspectorTelemetry {
 public:
  // `epoch` tells these batches from those of an earlier master.
  InspectorTelemetry(std::string job, uint64_t epoch);

  // What was read at `now`, of all processes together.
  void Observe(const std::vector<InspectorRecord>& records, Now now);

  // The state of `now`, by host; also hosts of which nothing is told any more, once, without processes.
  std::vector<v1::TelemetryBatch> Take(Now now);

  // For a job of which another source tells the processes: adds what is known of these.
  void AddTo(Now now, v1::TelemetryBatch* batch);

 private:
  struct Finished {
    int64_t began_ns = 0;  // by the host's clock
    int64_t ended_ns = 0;
    uint64_t operations = 1;  // with those before it of which nothing is written
    uint64_t bytes = 0;
    uint64_t communicator_id = 0;
    std::string function;
  };
  struct Seat {
    uint32_t rank = 0;
    uint32_t rank_count = 0;
    int64_t seen_ns = kNever;                        // by the master's clock
    std::map<std::string, uint64_t> sequences = {};  // the last one of each function
    uint64_t finished = 0;                           // collectives, as far as is told
    int64_t finished_ns = kNever;                    // the last one, by the master's clock
  };
  using ProcessId = std::pair<std::string, uint32_t>;  // host, pid
  struct ProcessLog {
    std::map<uint64_t, Seat> seats;              // by communicator
    std::multimap<int64_t, Finished> under_way;  // by their ends: not told yet
    analysis::IntervalUnion covered;             // by the host's clock
    uint64_t skipped_ns = 0;                     // of operations of which nothing is written
    uint64_t operations = 0;
    int64_t first_ns = kNever;  // by the master's clocks:
    int64_t seen_ns = kNever;
    int64_t offset_ns = INT64_MAX;  // the master's clock minus the host's, at most
    std::map<std::pair<uint64_t, std::string>, v1::OperationSummary> summaries;  // since the last batch
  };
  static void Advance(Now now, ProcessLog* log);
  static void Fill(Now now, ProcessLog* log, v1::ProcessReport* report);
  void Forget(Now now);

  const std::string job_;
  const uint64_t epoch_;
  uint64_t sequence_ = 0;
  std::map<ProcessId, ProcessLog> logs_;
  std::map<std::pair<uint64_t, uint32_t>, ProcessId> by_seat_;  // communicator, rank
  std::vector<std::string> hosts_;                              // of the last batches
};

}  // namespace c4::c4d
