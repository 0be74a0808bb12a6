#include "cli/trace/trace_moment.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr double kYearS = 366 * 86400.0;
constexpr double kNsOfSecond = 1e9;

bool ParseTimeOfDay(const std::string& text, const RecordedTime& recorded, int64_t* unix_ns) {
  const absl::Time end = absl::FromUnixNanos(recorded.end_unix_ns);
  const absl::TimeZone zone = absl::LocalTimeZone();
  absl::CivilDay day(absl::ToCivilSecond(end, zone));
  for (const char* format : {"%Y-%m-%d %H:%M:%E*S", "%Y-%m-%d %H:%M"}) {
    absl::Time moment;
    if (!absl::ParseTime(format, absl::StrCat(absl::FormatCivilTime(day), " ", text), zone, &moment,
                         nullptr)) {
      continue;
    }
    if (moment > end) {
      --day;
      if (!absl::ParseTime(format, absl::StrCat(absl::FormatCivilTime(day), " ", text), zone, &moment,
                           nullptr)) {
        return false;
      }
    }
    *unix_ns = absl::ToUnixNanos(moment);
    return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<int64_t> ParseMoment(const std::string& text, const RecordedTime& recorded) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    if (!std::isfinite(seconds) || std::abs(seconds) > kYearS) {
      return absl::InvalidArgumentError(absl::StrCat("\"", service::Printable(text), "\" s is no time"));
    }
    const auto ns = static_cast<int64_t>(seconds * kNsOfSecond);
    return std::signbit(seconds) ? recorded.end_unix_ns - recorded.begin_unix_ns + ns : ns;
  }
  int64_t unix_ns = 0;
  absl::Time moment;
  if (absl::ParseTime(absl::RFC3339_full, text, &moment, nullptr)) {
    unix_ns = absl::ToUnixNanos(moment);
  } else if (!ParseTimeOfDay(text, recorded, &unix_ns)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", service::Printable(text),
        "\" is no moment: give seconds since the recording began (12.5), before its end (-30), a time "
        "of day (03:12:07) or a date with time (2026-01-31T03:12:07Z)"));
  }
  const int64_t since_ns = unix_ns - recorded.begin_unix_ns;
  if (std::abs(static_cast<double>(since_ns)) > kYearS * kNsOfSecond) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", service::Printable(text), "\" is not near the time of the recording, ",
                     absl::FormatTime(absl::FromUnixNanos(recorded.begin_unix_ns))));
  }
  return since_ns;
}

}  // namespace c4::cli
