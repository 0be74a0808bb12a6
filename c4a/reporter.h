// From what the scanner holds to what the masters get: one whole batch per job. Batches say everything
// relative to their own time (ages), so that a master needs no clock of the node.
// Pure apart from the tallies, which a report empties. Belongs to the scanning thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>

#include "c4/v1/telemetry.pb.h"
#include "c4a/health/event_log.h"
#include "c4a/segment_file.h"

namespace c4::agent {

struct ReporterOptions {
  std::string host;
  uint64_t agent_epoch = 0;
  std::string agent_version;
};

// A process's health as telemetry tells it at `now_ns` of the node's clock.
void FillHealth(const ProcessHealth& from, int64_t now_ns, v1::ProcessHealth* to);

class Reporter {
 public:
  explicit Reporter(ReporterOptions options) : options_(std::move(options)) {}

  // What the node's hardware has said lately: in each batch from now on, of whichever job.
  void SetHardware(const std::deque<NumberedEvent>& recent, uint64_t left_out);

  // By job. Processes that have no job yet are left out. Marks processes that are no more as reported.
  std::map<std::string, v1::TelemetryBatch> Report(std::span<SegmentFile* const> processes,
                                                   int64_t monotonic_ns, int64_t unix_ns);
  // A batch without processes: the job has left this node.
  v1::TelemetryBatch Empty(int64_t monotonic_ns, int64_t unix_ns);

 private:
  const ReporterOptions options_;
  uint64_t sequence_ = 0;  // one for all jobs: within one job it grows, with gaps
  std::deque<NumberedEvent> hardware_;
  uint64_t hardware_left_out_ = 0;
};

// Of a process, relative to `now_ns`.
v1::ProcessReport MakeProcessReport(const std::string& host, SegmentFile* segment, int64_t now_ns);

// Profiled operations and marks of a process that wait for its master: some seconds at the fine level.
inline constexpr int kMostWaitingEntries = 32768;

// What no master will see of `old` in a batch of its own goes into `next`, the one that comes in its place:
// the operations, the profiles (at most kMostWaitingEntries of a process, the newest; the rest counts as left
// out), and processes that have left in order since.
void Supersede(v1::TelemetryBatch old, v1::TelemetryBatch* next);

// "10.0.0.1:4711", "[fe80::1]:4711"; empty when nothing is set.
std::string EndpointText(const wire::Endpoint& endpoint);

}  // namespace c4::agent
