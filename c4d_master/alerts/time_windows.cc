#include "c4d_master/alerts/time_windows.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "c4d_master/alerts/targets.h"
#include "c4d_master/json_fields.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr const char* kDays[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr int kMinutesOfDay = 24 * 60;

// "02:00"; "24:00" is the day's end.
std::optional<int> MinuteOf(const std::string& text) {
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  for (const size_t i : {0, 1, 3, 4}) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
  }
  const int minute = ((text[0] - '0') * 10 + text[1] - '0') * 60 + (text[3] - '0') * 10 + text[4] - '0';
  if (text[3] > '5' || minute > kMinutesOfDay) return std::nullopt;
  return minute;
}

std::string MinuteText(int minute) {
  return absl::StrFormat("%02d:%02d", minute / 60, minute % 60);
}

std::string MomentText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixNanos(unix_ns), absl::UTCTimeZone());
}

int64_t ReadMoment(const char* key, JsonFields* fields) {
  std::string text;
  fields->Text(key, &text);
  if (!fields->status().ok()) return 0;
  absl::Time moment;
  std::string why;
  if (!absl::ParseTime(absl::RFC3339_full, text, &moment, &why)) {
    fields->Fail(
        Concat("\"", key, "\" is \"", service::ToUtf8(text), "\"; give a moment as 2026-12-01T02:00:00Z"));
    return 0;
  }
  return absl::ToUnixNanos(moment);
}

void ReadWeekly(JsonFields* fields, TimeWindow* window) {
  std::vector<std::string> days;
  std::string from, to;
  window->zone_name = "UTC";
  fields->Texts("days", &days);
  fields->Text("from", &from);
  fields->Text("to", &to);
  fields->Text("zone", &window->zone_name);
  if (!fields->status().ok()) return;
  window->days.assign(std::size(kDays), days.empty());
  for (const std::string& day : days) {
    const auto* found =
        std::find_if(std::begin(kDays), std::end(kDays), [&day](const char* name) { return day == name; });
    if (found == std::end(kDays)) {
      fields->Fail(Concat("\"days\" holds \"", service::ToUtf8(day),
                          "\"; there are mon, tue, wed, thu, fri, sat, sun"));
      return;
    }
    window->days[static_cast<size_t>(found - std::begin(kDays))] = true;
  }
  const std::optional<int> from_minute = MinuteOf(from);
  const std::optional<int> to_minute = MinuteOf(to);
  if (!from_minute.has_value() || !to_minute.has_value() || *from_minute == *to_minute ||
      *from_minute == kMinutesOfDay) {
    fields->Fail("give \"from\" and \"to\", two times of the day as 02:00; 00:00 to 24:00 is all of it");
    return;
  }
  window->from_minute = *from_minute;
  window->to_minute = *to_minute;
  if (!absl::LoadTimeZone(window->zone_name, &window->zone)) {
    fields->Fail(Concat("\"zone\" is \"", service::ToUtf8(window->zone_name),
                        "\", which this machine does not know; give UTC, or a name as Europe/Berlin"));
  }
}

}  // namespace

std::optional<int64_t> TimeWindow::OpenUntil(int64_t unix_ns) const {
  if (days.empty()) {
    if (unix_ns < begin_unix_ns || unix_ns >= end_unix_ns) return std::nullopt;
    return end_unix_ns;
  }
  const absl::Time now = absl::FromUnixNanos(unix_ns);
  const absl::CivilDay today = absl::ToCivilDay(now, zone);
  // The one that began today, or yesterday where it goes past midnight.
  for (const absl::CivilDay day : {today, today - 1}) {
    if (!days[static_cast<size_t>(absl::GetWeekday(day))]) continue;
    const auto moment = [&](int minute) { return absl::FromCivil(absl::CivilMinute(day) + minute, zone); };
    const absl::Time begin = moment(from_minute);
    const absl::Time end = moment(to_minute > from_minute ? to_minute : to_minute + kMinutesOfDay);
    if (begin <= now && now < end) return absl::ToUnixNanos(end);
  }
  return std::nullopt;
}

std::string TimeWindow::Text() const {
  if (days.empty()) return Concat(MomentText(begin_unix_ns), " to ", MomentText(end_unix_ns));
  std::string text;
  if (std::find(days.begin(), days.end(), false) == days.end()) text = "every day";
  for (size_t i = 0; i < days.size() && text != "every day"; ++i) {
    if (days[i]) text += Concat(text.empty() ? "" : ", ", kDays[i]);
  }
  return Concat(text, " ", MinuteText(from_minute), " to ", MinuteText(to_minute), " ", zone_name);
}

absl::StatusOr<TimeWindow> ReadTimeWindow(const nlohmann::json& json, size_t index) {
  TimeWindow window;
  std::string place = Concat("maintenance window number ", index + 1);
  if (json.is_object() && json.contains("name") && json["name"].is_string()) {
    window.name = json["name"].get<std::string>();
    C4_RETURN_IF_NOT_OK(CheckAlertName("maintenance window", window.name));
    place = Concat("maintenance window ", window.name);
  }
  JsonFields fields(json, place);
  std::string name;
  std::vector<std::string> match;
  fields.Text("name", &name);
  if (window.name.empty()) fields.Fail("it has no \"name\"; give it one");
  fields.Texts("match", &match);
  const bool once = fields.Has("begin") || fields.Has("end");
  if (once == (fields.Has("from") || fields.Has("to"))) {
    fields.Fail("give either \"begin\" and \"end\" (moments), or \"from\" and \"to\" (times of \"days\")");
  } else if (once) {
    window.begin_unix_ns = ReadMoment("begin", &fields);
    window.end_unix_ns = ReadMoment("end", &fields);
    if (window.end_unix_ns <= window.begin_unix_ns)
      fields.Fail("\"end\" is not after \"begin\"; correct them");
  } else {
    ReadWeekly(&fields, &window);
  }
  C4_RETURN_IF_NOT_OK(fields.Done());
  absl::StatusOr<std::vector<Matcher>> matchers = ParseMatchers(match);
  if (!matchers.ok()) {
    fields.Fail(Concat("\"match\": ", matchers.status().message()));
    return fields.status();
  }
  window.matchers = *std::move(matchers);
  return window;
}

}  // namespace c4::c4d
