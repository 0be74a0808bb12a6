// SMon's sessions for people. Pure.
#pragma once

#include <string>

#include "c4/v1/smon.pb.h"

namespace c4::cli {

// One session a line, the newest last.
std::string SessionTable(const v1::ListSessionsReply& reply);
// Which session it is and what came of it; then its report, as `c4 whatif` prints it.
std::string SessionText(const v1::GetSessionReply& reply);

}  // namespace c4::cli
