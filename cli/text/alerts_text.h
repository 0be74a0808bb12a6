// Alerts, silences and maintenance windows for people. Pure.
#pragma once

#include <string>

#include "c4/v1/alerts.pb.h"
#include "cli/text/screen.h"

namespace c4::cli {

// What fires, what is muted, where notifications wait; the rules that are quiet on one line.
std::string AlertsText(const v1::ListAlertsReply& reply, int64_t now_unix_ns, const Screen& screen);
std::string SilencesText(const v1::ListAlertsReply& reply, const Screen& screen);
std::string WindowsText(const v1::ListAlertsReply& reply, const Screen& screen);
std::string SilenceLine(const v1::Silence& silence);

}  // namespace c4::cli
