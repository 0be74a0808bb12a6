// A job's timeline as the operator's page asks for it (docs/page.md), from its recordings. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "c4/v1/page.pb.h"
#include "cli/trace/trace_row.h"
#include "page/fleet_source.h"
#include "service/status.h"

namespace c4::cli {

inline constexpr size_t kMostTimelineSpans = 60'000;

// Runs the master's logic over the recordings, which follow each other, oldest first. Errors: those of
// c4d::ReplayRecordings.
absl::StatusOr<v1::PageTimeline> TimelineOf(const std::vector<std::string>& recordings,
                                            const page::TimelineWindow& window);

// Puts what touches the window [from_ns, to_ns] of the timeline's clock into the page's form: rows of the
// whole job, then host by host. Where there are more than `most` spans, a window whose begin nobody asked for
// is made shorter; in any other, spans that are too short to be seen are left out, and counted. Rows of ranks
// that are not asked for are not there.
v1::PageTimeline DescribeTimeline(const Timeline& timeline, int64_t from_ns, int64_t to_ns,
                                  const page::TimelineWindow& window, size_t most = kMostTimelineSpans);

}  // namespace c4::cli
