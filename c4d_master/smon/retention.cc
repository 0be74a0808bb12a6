#include "c4d_master/smon/retention.h"

namespace c4::c4d {

Pruned Prune(const std::vector<KeptSession>& sessions, const Retention& retention, int64_t now_unix_ns) {
  Pruned pruned;
  size_t kept = 0;
  size_t with_report = 0;
  for (auto session = sessions.rbegin(); session != sessions.rend(); ++session) {
    if (kept == retention.sessions) {
      pruned.sessions.push_back(session->number);
      continue;
    }
    ++kept;
    if (!session->has_report) continue;
    const bool old = now_unix_ns - session->begun_unix_ns > retention.report_age_ns;
    if (old || with_report == retention.reports) {
      pruned.reports.push_back(session->number);
    } else {
      ++with_report;
    }
  }
  return pruned;
}

}  // namespace c4::c4d
