// The state of a job as a person reads it in a terminal. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "c4/v1/c4d.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

// "12.3 s", "4 min 5 s", "3 h 20 min"; "-" for negative times.
std::string DurationText(int64_t duration_ns);

// What a line of the first table stands for.
enum class StatusBy {
  kFitting,  // ranks, or nodes where there are more than 32 ranks
  kRank,
  kNode,
};
// The tables of `c4 status`: ranks or nodes, then agents. Columns that a person misses least are left out
// until a line fits the screen's width. By node, nodes that look alike share a line, and what differs stands
// first. Of a rank that was started again the process that is there counts, or that was there last; how many
// others there were is said.
std::string StatusText(const v1::GetStatusReply& known, StatusBy by, const Screen& screen);

}  // namespace c4::cli
