// The thresholds by which a job is judged, as one value, and their table: what each is called, in which unit,
// within which range, what it means and what it was tuned on. Detectors read their part of it
// (HangThresholds, SlowThresholds, …), whose initialisers are the defaults; files (docs/policy.md), `c4
// policy` and the options of c4d_master go by the table.
//
// Values and pure functions, but for LoadPolicy; any thread. Errors name the file, the line, and what to do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "c4d_master/detectors/diagnose.h"
#include "c4d_master/failslow/episode.h"
#include "c4d_master/intervention/thresholds.h"
#include "c4d_master/rhythm.h"
#include "c4d_master/verdicts.h"
#include "c4d_master/windows.h"
#include "service/status.h"

namespace c4::c4d {

// Around confirmed trouble nothing is learnt: from the moment that it may have begun until its traces are
// gone.
struct TroubleThresholds {
  int64_t slow_before_ns = 15 * kSecondNs;
  int64_t slow_after_ns = 6 * kSecondNs;
  int64_t standstill_after_ns = 2 * kSecondNs;
  int64_t recovery_ns = 8 * kSecondNs;  // nothing is slow; the windows have forgotten by then
};

struct Policy {
  Thresholds detectors;
  WindowThresholds windows;
  RhythmThresholds rhythm;
  TroubleThresholds trouble;
  VerdictThresholds verdicts;
  InterventionThresholds intervention;
  FailSlowThresholds fail_slow;
  int64_t agent_stale_ns = 3 * kSecondNs;
};

// int64_t: nanoseconds, given in seconds; uint64_t: a number of something; double: a ratio.
using PolicyField = std::variant<int64_t*, uint64_t*, double*>;

struct PolicyEntry {
  const char* name;  // "hang-suspect-s", as in files; those of times end in -s
  const char* unit;  // "s", "times", "share", "slices", …
  double low;        // the inclusive range
  double high;
  const char* meaning;
  const char* tuned_on;
  PolicyField (*field)(Policy& policy);
};

// In the order of the manual, group by group. The default of an entry is what Policy() holds.
std::span<const PolicyEntry> PolicyTable();
const PolicyEntry* FindPolicyEntry(std::string_view name);  // nullptr: there is none

// In the entry's unit: seconds, a number, a ratio.
double PolicyValue(const PolicyEntry& entry, Policy policy);
std::string PolicyValueText(const PolicyEntry& entry, const Policy& policy);
// `value` in the entry's unit. OutOfRange, with what may be given.
absl::Status SetPolicyValue(const PolicyEntry& entry, double value, Policy* policy);

// Values that contradict each other: `less` must not be above `more`.
struct PolicyOrder {
  const char* less;
  const char* more;
};
std::span<const PolicyOrder> PolicyOrders();
// `prefix` stands before names, "--" where these are options.
absl::Status CheckPolicy(const Policy& policy, std::string_view prefix = "");

// "key = value" lines, '#' begins a comment; what is not given is at its default. `name` of the file stands
// in messages.
absl::StatusOr<Policy> ParsePolicy(std::string_view text, const std::string& name);
absl::StatusOr<Policy> LoadPolicy(const std::string& path);

// Eight hexadecimal digits of all effective values: the same for equal policies, on every machine.
std::string PolicyVersion(const Policy& policy);

}  // namespace c4::c4d
