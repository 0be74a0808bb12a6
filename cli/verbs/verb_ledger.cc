// c4 ledger: what fail-slows have cost a job (docs/mitigation.md).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "analysis/mitigation/report.h"
#include "cli/exit_codes.h"
#include "cli/launch/job_log.h"
#include "cli/options.h"
#include "cli/text/screen.h"
#include "cli/text/verdict_text.h"
#include "cli/verbs/ask_master.h"
#include "cli/verbs/ended_job.h"
#include "cli/verbs/ledger.h"
#include "service/printable.h"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "what each fail-slow of a job has cost, in GPU-hours";
constexpr absl::Duration kCallLimit = absl::Seconds(5);

// Lines of a person's text that are too long for a terminal, in several.
std::string InLines(const std::string& text) {
  constexpr size_t kColumns = 80;
  constexpr size_t kMore = 2;  // that what goes on stands further in
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(text, "\n"), '\n')) {
    const std::string whole(line);
    const size_t indent = std::min(whole.find_first_not_of(' '), whole.size());
    if (TextColumns(whole) <= kColumns) {
      absl::StrAppend(&lines, whole, "\n");
    } else {
      absl::StrAppend(&lines, whole.substr(0, indent),
                      Wrapped(whole.substr(indent), kColumns - indent - kMore, indent + kMore), "\n");
    }
  }
  return lines;
}

int Print(const v1::ListVerdictsReply& reply, const v1::ListDecisionsReply& decisions, int64_t now_unix_ns,
          bool json) {
  const mitigation::Ledger ledger = LedgerOf(reply, decisions);
  const auto clock = [now_unix_ns](double unix_s) {
    return ClockText(static_cast<int64_t>(std::llround(unix_s * 1e9)), now_unix_ns);
  };
  const std::string text = json ? mitigation::LedgerJson(reply.job(), ledger) + "\n"
                                : InLines(mitigation::LedgerText(reply.job(), ledger, clock));
  fputs(service::PrintablePage(text).c_str(), stdout);
  return kExitOk;
}

int RunLedger(const Arguments& arguments) {
  MasterOptions master;
  std::string job;
  std::string log_dir;
  bool json = false;
  Options options("ledger", kSummary);
  options.Text("JOB", &job, "", "the job, also one that is over; the only one that runs by default");
  master.Declare(&options);
  DeclareLogDir(&options, &log_dir);
  options.Flag("--json", &json, "one JSON document: {\"job\",\"lost_gpu_hours\",\"events\":[...]}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  if (!job.empty() && !master.job.empty() && job != master.job) {
    return UsageError("ledger", absl::StrCat("two jobs are named, ", job, " and ", master.job));
  }
  if (!job.empty()) master.job = job;
  v1::ListDecisionsReply decisions;
  const auto reply = AskOnce<v1::ListVerdictsReply>(master, [&decisions](const MasterClient& client) {
    // An earlier master decides nothing.
    if (auto decided = client.ListDecisions(kCallLimit); decided.ok()) decisions = *std::move(decided);
    return client.ListVerdicts(true, kCallLimit);
  });
  if (reply.ok()) return Print(*reply, decisions, absl::GetCurrentTimeNanos(), json);
  const absl::StatusOr<JobRecord> record = EndedInstead(reply.status(), master, log_dir);
  if (!record.ok()) return ComplainOf("ledger", record.status());
  const absl::StatusOr<v1::ListVerdictsReply> ended = EndedVerdicts(*record, true);
  if (!ended.ok()) return ComplainOf("ledger", ended.status());
  const absl::StatusOr<v1::ListDecisionsReply> decided = EndedDecisions(*record);
  if (!decided.ok()) return ComplainOf("ledger", decided.status());
  return Print(*ended, *decided, absl::GetCurrentTimeNanos(), json);
}

}  // namespace

constinit const Verb kLedgerVerb = {"ledger", kSummary, RunLedger};

}  // namespace c4::cli
