// Recovery's state and its incidents for people. Pure.
#pragma once

#include <string>

#include "c4/v1/recovery.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

std::string RecoveryText(const v1::GetRecoveryReply& reply, int64_t now_unix_ns, const Screen& screen);
// A row an incident: when, what, and what it cost in each part.
std::string IncidentsText(const v1::GetRecoveryReply& reply, const Screen& screen);

}  // namespace c4::cli
