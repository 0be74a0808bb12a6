// What an agent says of a job's processes after its master has acknowledged a whole batch: only what has
// changed since, in columns (docs/formats/proto.md). A job of thousands of ranks with tens of communicators
// each would else spend most of its master's time on hearing again what that knows.
//
// A pure function; any thread; no errors.
#pragma once

#include <optional>

#include "c4/v1/telemetry.pb.h"

namespace c4::agent {

// `base` and `next` are whole, of one epoch; `next` is left as it is. Nothing: other processes than before,
// or profiles, which are told in a whole batch.
std::optional<v1::TelemetryBatch> ChangesSince(const v1::TelemetryBatch& base, v1::TelemetryBatch* next);

}  // namespace c4::agent
