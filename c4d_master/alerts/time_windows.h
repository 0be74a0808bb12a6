// Maintenance windows: times in which alerts that match are not told (docs/alerts.md). Either once, from one
// moment to another, or on days of the week, by the clock of a time zone. Pure: the time is passed in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/time/time.h"
#include "c4d_master/alerts/labels.h"
#include "service/status.h"

namespace c4::c4d {

struct TimeWindow {
  std::string name;
  std::vector<Matcher> matchers;  // never empty
  // Once.
  int64_t begin_unix_ns = 0;
  int64_t end_unix_ns = 0;
  // Or weekly: on each of these days (0: Monday) from one minute of the day to another, past midnight where
  // that is the earlier one.
  std::vector<bool> days;
  int from_minute = 0;
  int to_minute = 0;
  absl::TimeZone zone;
  std::string zone_name;

  // Its end, where it is open at that moment.
  std::optional<int64_t> OpenUntil(int64_t unix_ns) const;
  std::string Text() const;  // "sat, sun 02:00 to 04:00 UTC"
};

absl::StatusOr<TimeWindow> ReadTimeWindow(const nlohmann::json& json, size_t index);

}  // namespace c4::c4d
