// The profile that a recording of a job's telemetry holds (docs/formats/recording.md), where the job recorded
// at the fine level meanwhile: joined as that of a live session.
//
// Nothing in the file is believed. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "c4d_master/smon/profile_source.h"

namespace c4::c4d {

// NotFound with a sentence where nothing in it can be analysed; InvalidArgument where it is no recording, and
// what opening a file gives. What is missing because the file breaks off stands in `not_seen`.
absl::StatusOr<ProfiledJob> ReadRecordedProfile(const std::string& path);

}  // namespace c4::c4d
