#include "cli/status_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Pads columns to the widest cell; the last one is left as it is.
std::string Columns(const Rows& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      absl::StrAppend(&text, row[i], std::string(widths[i] - row[i].size() + 2, ' '));
    }
    absl::StrAppend(&text, row.empty() ? "" : row.back(), "\n");
  }
  return text;
}

std::string RankTable(const v1::GetStatusReply& status) {
  if (status.ranks().empty()) return "no rank has been seen yet\n";
  Rows rows = {{"RANK", "HOST", "PID", "STATE", "FOR", "NO PROGRESS", "CALLED", "STARTED", "FINISHED",
                "COMMUNICATOR"}};
  for (const v1::RankStatus& rank : status.ranks()) {
    const v1::ProcessHealth& health = rank.health();
    rows.push_back({rank.rank() < 0 ? "?" : absl::StrCat(rank.rank()), rank.process().host(),
                    absl::StrCat(rank.process().pid()),
                    std::string(service::ProcessStateWord(health.state())),
                    DurationText(health.state_age_ns()), DurationText(health.progress_age_ns()),
                    absl::StrCat(rank.called()), absl::StrCat(rank.started()), absl::StrCat(rank.finished()),
                    service::CommunicatorText(rank.communicator_id())});
  }
  return Columns(rows);
}

std::string AgentTable(const v1::GetStatusReply& status) {
  if (status.agents().empty()) return "no agent reports yet\n";
  Rows rows = {{"AGENT ON", "LAST BATCH", "BATCHES", "DROPPED", "CLOCK KNOWN TO", "VERSION"}};
  for (const v1::AgentStatus& agent : status.agents()) {
    rows.push_back({agent.host(), DurationText(agent.last_batch_age_ns()) + " ago",
                    absl::StrCat(agent.batches()), absl::StrCat(agent.batches_dropped()),
                    agent.has_clock_error_ns()
                        ? absl::StrFormat("%.1f ms", static_cast<double>(agent.clock_error_ns()) / 1e6)
                        : "-",
                    agent.version()});
  }
  return Columns(rows);
}

}  // namespace

std::string DurationText(int64_t duration_ns) {
  if (duration_ns < 0) return "-";
  const double seconds = static_cast<double>(duration_ns) / 1e9;
  if (seconds < 99.95) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = duration_ns / 1'000'000'000;
  if (whole < 3600) return absl::StrFormat("%d min %d s", whole / 60, whole % 60);
  return absl::StrFormat("%d h %d min", whole / 3600, whole % 3600 / 60);
}

std::string StatusText(const v1::GetStatusReply& status) {
  return absl::StrCat("job ", status.job(), ", master epoch ",
                      service::CommunicatorText(status.master_epoch()), "\n\n", RankTable(status), "\n",
                      AgentTable(status));
}

}  // namespace c4::cli
