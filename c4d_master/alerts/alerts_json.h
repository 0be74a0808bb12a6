// Alerts as JSON (docs/alerts.md says what each field means). The HTTP pages and the command line take them
// from here, so that they never differ. Pure.
#pragma once

#include <string>

#include "c4/v1/alerts.pb.h"

namespace c4::c4d {

// `indent`: spaces a level; -1: all on one line.
// {"job","config_fault","alerts":[...],"rules":[...],"targets":[...],"silences":[...],"windows":[...]}
std::string AlertListJson(const v1::ListAlertsReply& reply, int indent = -1);
std::string AlertsJson(const v1::AcknowledgeAlertReply& reply, int indent = -1);  // {"alerts":[...]}
std::string SilenceJson(const v1::Silence& silence, int indent = -1);

}  // namespace c4::c4d
