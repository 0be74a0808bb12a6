// What the master's verdicts and a profiling session say of the same time, beside each other: both look at
// the same job and measure different things, so that they may name different ranks, or one of them nobody.
// Pure.
#pragma once

#include <string>

#include "c4/v1/c4d.pb.h"
#include "c4/v1/smon.pb.h"

namespace c4::cli {

// The verdicts that were confirmed while the session's steps ran, and of each whether the session agrees, or
// why not; of a session that blames a worker without such a verdict, why there is none. Empty where neither
// has anything to say.
std::string VerdictsBeside(const v1::GetSessionReply& reply, const v1::ListVerdictsReply& verdicts);

}  // namespace c4::cli
