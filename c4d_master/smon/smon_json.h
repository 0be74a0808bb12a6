// SMon's answers as JSON (docs/whatif.md says what each field means), and the words for its enums. The HTTP
// pages, notifications of alerts and the command line take them from here, so that they never differ. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "c4/v1/smon.pb.h"

namespace c4::c4d {

std::string_view SessionStateWord(
    int state);  // "collecting", "analysing", "analysed", "nothing to analyse", "failed"

// `indent`: spaces a level; -1: all on one line.
// {"job","available","not_available","every_s","sessions":[...]}
std::string SessionListJson(const v1::ListSessionsReply& reply, int indent = -1);
// {"session":{...},"report":{...}}; `report`: JSON as `c4 whatif --json`, null where it is empty.
std::string SessionJson(const v1::ProfilingSession& session, const std::string& report, int indent = -1);
// {"job","sessions":[{"number","unix_s","slowdown",...}]}
std::string HistoryJson(const std::string& job, const std::vector<v1::ProfilingSession>& sessions,
                        int indent = -1);

}  // namespace c4::c4d
