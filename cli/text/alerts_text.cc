#include "cli/text/alerts_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

std::string TimeText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

std::string AgeText(int64_t unix_ns, int64_t now_unix_ns) {
  const int64_t seconds = (now_unix_ns - unix_ns) / 1'000'000'000;
  if (seconds < 0) return "0 s";
  if (seconds < 120) return absl::StrCat(seconds, " s");
  if (seconds < 7200) return absl::StrCat(seconds / 60, " min");
  if (seconds < 172'800) return absl::StrCat(seconds / 3600, " h");
  return absl::StrCat(seconds / 86'400, " days");
}

// Behind two blanks, broken between words where the screen has a width.
std::string Line(const std::string& text, const Screen& screen) {
  constexpr size_t kIndent = 4;
  const std::string line = absl::StrCat("  ", text);
  if (screen.columns == 0) return line + "\n";
  return Wrapped(line, static_cast<size_t>(screen.columns), kIndent) + "\n";
}

std::string StateWord(const v1::Alert& alert) {
  if (alert.firing()) return "FIRING";
  return alert.over() ? "pending" : "resolved";
}

std::string OneAlert(const v1::Alert& alert, int64_t now_unix_ns, const Screen& screen) {
  const v1::AlertDetail& detail = alert.detail();
  const std::string word = StateWord(alert);
  const int64_t since_ns = alert.over() ? alert.since_unix_ns() : detail.resolved_unix_ns();
  std::string text =
      absl::StrCat(Painted(screen,
                           alert.firing() ? Colour::kRed
                           : alert.over() ? Colour::kYellow
                                          : Colour::kGreen,
                           word),
                   "  ", alert.id(), "  ", alert.over() ? "for " : "", AgeText(since_ns, now_unix_ns),
                   alert.over() ? "" : " ago",
                   detail.severity().empty() ? "" : absl::StrCat("  [", detail.severity(), "]"), "\n");
  text += Line(alert.text().empty() ? alert.condition() : alert.text(), screen);
  if (!detail.acknowledged_by().empty()) {
    text +=
        Line(absl::StrCat("acknowledged by ", detail.acknowledged_by(), " at ",
                          TimeText(detail.acknowledged_unix_ns()),
                          detail.acknowledged_comment().empty() ? "" : ": ", detail.acknowledged_comment()),
             screen);
  }
  if (!detail.muted_by().empty()) {
    text += Line(
        absl::StrCat("muted by ", detail.muted_by(), " until ", TimeText(alert.silenced_until_unix_ns())),
        screen);
  }
  const v1::AlertDelivery& last = alert.last_delivery();
  if (alert.has_last_delivery() && !last.delivered()) {
    text +=
        Line(absl::StrCat(last.what(), " was not delivered to ", last.target(), ": ", last.text()), screen);
  } else if (alert.has_last_delivery()) {
    text +=
        Line(absl::StrCat("told ", last.target(), " at ", TimeText(last.unix_ns()), " (", last.what(), ")"),
             screen);
  } else if (alert.told_firing()) {
    text += Line("on its way to its targets", screen);
  }
  return text;
}

std::string OneTarget(const v1::AlertTargetStatus& target, int64_t now_unix_ns, const Screen& screen) {
  std::string text = absl::StrCat(target.name(), ": ", target.way());
  if (target.waiting() > 0) {
    absl::StrAppend(&text, "; ", target.waiting(), " waiting, the oldest for ",
                    AgeText(target.oldest_unix_ns(), now_unix_ns));
    const int64_t in_ns = target.next_attempt_unix_ns() - now_unix_ns;
    if (in_ns > 0) absl::StrAppend(&text, ", tried again in ", (in_ns + 999'999'999) / 1'000'000'000, " s");
  }
  if (!target.trouble().empty()) absl::StrAppend(&text, "; ", target.trouble());
  return Line(text, screen);
}

}  // namespace

std::string AlertsText(const v1::ListAlertsReply& reply, int64_t now_unix_ns, const Screen& screen) {
  if (reply.rules().empty() && reply.config_fault().empty()) {
    return absl::StrCat("job ", reply.job(),
                        ": no alert rules (--alerts FILE of the master gives it some)\n");
  }
  std::string text;
  if (!reply.config_fault().empty()) {
    text += Line(absl::StrCat("The file of alerts is not in force: ", reply.config_fault()), screen);
  }
  for (const v1::Alert& alert : reply.alerts()) text += OneAlert(alert, now_unix_ns, screen);
  std::vector<std::string> quiet;
  for (const v1::AlertRuleStatus& rule : reply.rules()) {
    if (rule.firing() == 0) quiet.push_back(rule.name());
  }
  if (reply.alerts().empty()) absl::StrAppend(&text, "job ", reply.job(), ": no alert\n");
  if (!quiet.empty()) {
    absl::StrAppend(&text, "rules that do not fire:\n", Line(absl::StrJoin(quiet, ", "), screen));
  }
  text += "targets:\n";
  for (const v1::AlertTargetStatus& target : reply.targets()) text += OneTarget(target, now_unix_ns, screen);
  if (!reply.silences().empty()) text += absl::StrCat("silences:\n", SilencesText(reply, screen));
  return text;
}

std::string SilenceLine(const v1::Silence& silence) {
  return absl::StrCat(silence.number(), ": ", absl::StrJoin(silence.matchers(), " "), " until ",
                      TimeText(silence.until_unix_ns()), silence.by().empty() ? "" : ", by ", silence.by(),
                      silence.comment().empty() ? "" : ": ", silence.comment());
}

std::string SilencesText(const v1::ListAlertsReply& reply, const Screen& screen) {
  if (reply.silences().empty()) return "no silence\n";
  std::string text;
  for (const v1::Silence& silence : reply.silences()) text += Line(SilenceLine(silence), screen);
  return text;
}

std::string WindowsText(const v1::ListAlertsReply& reply, const Screen& screen) {
  if (reply.windows().empty()) return "no maintenance windows (\"windows\" in the file of alerts)\n";
  std::string text;
  for (const v1::MaintenanceWindow& window : reply.windows()) {
    text += Line(
        absl::StrCat(window.name(), ": ", window.text(), " for ", absl::StrJoin(window.matchers(), " "),
                     window.open() ? absl::StrCat("; OPEN until ", TimeText(window.until_unix_ns())) : ""),
        screen);
  }
  return text;
}

}  // namespace c4::cli
