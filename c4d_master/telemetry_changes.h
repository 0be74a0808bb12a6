// Batches that say what has changed since a former one (telemetry.proto, TelemetryBatch.base), applied to
// what is held of their host. Like telemetry_decode.h it believes nothing: what does not fit is told before
// anything is touched. Pure functions; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "c4d_master/batch_times.h"
#include "c4d_master/job_state.h"

namespace c4::v1 {
class ProcessChanges;
class ProcessReport;
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// Where the queue pairs that a process lists stand: the place of their communicator, and theirs in it.
using QueuePairPlaces = std::vector<std::pair<uint32_t, uint32_t>>;

// Of a whole report and what was made of it. Nothing: some of it was left out, so that places do not fit.
std::optional<QueuePairPlaces> PlacesOf(const v1::ProcessReport& report, const Process& process);

// InvalidArgument with a sentence where columns contradict each other, or a batch is whole and is not.
absl::Status CheckChanges(const v1::TelemetryBatch& batch);

// Whether all that `changes` speak of is held. REQUIRES: CheckChanges of their batch.
bool Fit(const v1::ProcessChanges& changes, const Process& process, const QueuePairPlaces& places);

// REQUIRES: they fit, and do not tell the process whole. Memberships that changed get another revision.
void Apply(const v1::ProcessChanges& changes, const BatchTimes& times, const QueuePairPlaces& places,
           Process* process);

}  // namespace c4::c4d
