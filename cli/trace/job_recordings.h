// The recordings of a job's last minutes in its directory of logs, and the time that recordings cover. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "cli/trace/trace_moment.h"
#include "service/status.h"

namespace c4::cli {

// The files of a job's directory that follow each other, oldest first; empty: nothing was recorded.
std::vector<std::string> RecordingsIn(const std::string& directory);

// From the first batch of the first file to the last one of the last. A file that is cut counts as far as it
// goes. Errors: those of c4d::ReadRecording.
absl::StatusOr<RecordedTime> TimeOfRecordings(const std::vector<std::string>& files);

}  // namespace c4::cli
