#include "cli/text/smon_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "c4d_master/smon/smon_json.h"

namespace c4::cli {
namespace {

std::string TimeText(int64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_ns), absl::LocalTimeZone());
}

std::string StateText(const v1::ProfilingSession& session) {
  const std::string_view word = c4d::SessionStateWord(session.state());
  return std::string(word) + (session.doubtful() ? ", doubtful" : "");
}

std::string Line(const v1::ProfilingSession& session) {
  std::string line = absl::StrFormat("%5d  %s  %-9s  ", session.number(), TimeText(session.begun_unix_ns()),
                                     session.requested() ? "request" : "schedule");
  if (session.state() != v1::SESSION_STATE_ANALYSED) {
    return absl::StrCat(line, StateText(session), session.why().empty() ? "" : ": ", session.why(), "\n");
  }
  absl::StrAppendFormat(&line, "slow-down %.3f, waste %.1f %%, %d steps of %.3f s", session.slowdown(),
                        100 * session.waste(), session.steps(), session.step_time_s());
  if (!session.causes().empty()) {
    absl::StrAppendFormat(&line, "; %s (%.0f %%)", session.causes(0).cause(),
                          100 * session.causes(0).share());
  }
  return absl::StrCat(line, session.doubtful() ? "; doubtful" : "", "\n");
}

}  // namespace

std::string SessionTable(const v1::ListSessionsReply& reply) {
  std::string text = absl::StrCat("job ", reply.job(), ": ");
  if (!reply.available()) {
    absl::StrAppend(&text, reply.not_available(), "\n");
  } else if (reply.every_s() > 0) {
    absl::StrAppendFormat(&text, "profiled every %.9g s\n", reply.every_s());
  } else {
    text += "profiled when asked (c4 smon run); --smon-every-s of the master sets a schedule\n";
  }
  if (reply.sessions().empty()) text += "no session yet\n";
  for (const v1::ProfilingSession& session : reply.sessions()) text += Line(session);
  return text;
}

std::string SessionText(const v1::GetSessionReply& reply) {
  const v1::ProfilingSession& session = reply.session();
  std::string text = absl::StrFormat("Session %d of job %s, begun %s, %s\n", session.number(), session.job(),
                                     TimeText(session.begun_unix_ns()), StateText(session));
  if (!session.why().empty()) absl::StrAppend(&text, session.why(), "\n");
  for (const std::string& sentence : session.not_seen()) absl::StrAppend(&text, "Not seen: ", sentence, "\n");
  if (!reply.report_text().empty()) absl::StrAppend(&text, "\n", reply.report_text());
  if (session.state() == v1::SESSION_STATE_ANALYSED && reply.report_text().empty()) {
    absl::StrAppend(&text, Line(session), "Its report is no longer kept.\n");
  }
  return text;
}

}  // namespace c4::cli
