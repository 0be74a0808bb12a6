// The state of a job as a person reads it in a terminal. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "c4/v1/c4d.pb.h"

namespace c4::cli {

// "12.3 s", "4 min 5 s", "3 h 20 min"; "-" for negative times.
std::string DurationText(int64_t duration_ns);
// The tables of `c4 status`: ranks, then agents.
std::string StatusText(const v1::GetStatusReply& status);

}  // namespace c4::cli
