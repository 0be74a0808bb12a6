// From an agent's batch to plain values: the only place of the master that reads telemetry
// messages, but for profiles (smon/profile_collector.h).
//
// Whatever a batch holds, nothing here crashes or allocates beyond what the batch itself weighs: absurd
// counts refuse the batch, single entries that contradict themselves (a rank past the rank count, a
// communicator listed twice) are left out and named in `faults`. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "c4d_master/batch_times.h"
#include "c4d_master/job_state.h"

namespace c4::v1 {
class OperationInfo;
class ProcessHealth;
class ProcessReport;
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// A limit that something was cut by: its name, as metrics have it, and a sentence of what was cut.
struct Limit {
  std::string name;
  std::string sentence;
};

// Far above what a node holds; a batch beyond them is a defect of its sender.
inline constexpr int kMaxProcessesPerBatch = 4096;
inline constexpr int kMaxCommunicatorsPerProcess = 4096;
inline constexpr int kMaxQueuePairsPerProcess = 1 << 17;
inline constexpr uint32_t kMaxRankCount = 1 << 22;
inline constexpr int64_t kMaxMonotonicNs = int64_t{1} << 61;  // 73 years of uptime
inline constexpr size_t kMaxTextBytes = 256;                  // of one string; the rest is cut off

// InvalidArgument with a sentence when the batch cannot be used at all.
absl::Status CheckBatch(const v1::TelemetryBatch& batch);

// The batch without the processes of another user than `owner_uid` (-1: all are let in, and so is who does
// not say), and without what a process has beyond the limits above: one that leaks communicators is still
// seen by those that it uses. Nothing when there is nothing to leave out; `faults`: a sentence each.
std::optional<v1::TelemetryBatch> WithoutExcess(const v1::TelemetryBatch& batch, int64_t owner_uid,
                                                std::vector<std::string>* faults,
                                                std::vector<Limit>* limits = nullptr);

// REQUIRES: CheckBatch(batch). `clock_offset_ns` is added to the node's monotonic times to make them the
// master's. `faults`: one sentence for each entry that was left out.
std::vector<Process> DecodeProcesses(const v1::TelemetryBatch& batch, int64_t clock_offset_ns,
                                     std::vector<std::string>* faults);

// The same of parts of a batch.
Process DecodeProcess(const v1::ProcessReport& report, const BatchTimes& times,
                      std::vector<std::string>* faults);
Health DecodeHealth(const v1::ProcessHealth& health, const BatchTimes& times);
OperationInfo DecodeOperation(const v1::OperationInfo& info);

// Whether nothing of it would be left out by WithoutExcess.
bool IsWelcome(const v1::ProcessReport& report, int64_t owner_uid);

// At most kMaxTextBytes, cut between characters.
std::string CutText(const std::string& text);

}  // namespace c4::c4d
