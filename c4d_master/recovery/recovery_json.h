// Recovery as JSON, and the words for its enums (docs/recovery.md says what each field means). Pure.
#pragma once

#include <string>
#include <string_view>

#include "c4/v1/recovery.pb.h"

namespace c4::c4d::recovery {

std::string_view PhaseWord(int phase);           // "proposed"
std::string_view HoldWord(int hold);             // "dry-run"; empty: nothing holds it
std::string_view NodeStateWord(int node_state);  // "isolated"

// {"job","mode",...,"nodes":[...],"incidents":[...],"notes":[...]}
std::string RecoveryJson(const v1::GetRecoveryReply& reply, int indent = -1);
// {"job","incidents":[...]}, each with its downtime.
std::string IncidentsJson(const v1::GetRecoveryReply& reply, int indent = -1);

}  // namespace c4::c4d::recovery
