// A moment as somebody types it, for `c4 trace --from`. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "service/status.h"

namespace c4::cli {

// The time that a recording covers.
struct RecordedTime {
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
};

// Nanoseconds since the recording's begin of "12.5" (seconds since then), "-30" (seconds before its end),
// "03:12" or "03:12:07.5" (the local time of day, the last such moment that is not past the end), or a date
// with time (RFC 3339). InvalidArgument with a sentence where it is none of these, or is not within the
// recording by a year.
absl::StatusOr<int64_t> ParseMoment(const std::string& text, const RecordedTime& recorded);

}  // namespace c4::cli
