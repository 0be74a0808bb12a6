// What the launcher tells of its job: verdicts as they come, why it ended, and the record that is kept.
#include <algorithm>
#include <sys/wait.h>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "c4/v1/c4d.pb.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/launch/launcher.h"
#include "cli/text/screen.h"
#include "cli/text/verdict_text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using std::chrono::milliseconds;

// From a rank's death to the master's verdict on it: the agent's look, its report, the detectors.
constexpr std::chrono::seconds kVerdictPatience{5};
// The same of a rank that ended by itself, of which there need not be one: a mismatch, which its program took
// for the reason to end.
constexpr std::chrono::seconds kFailurePatience{2};
// From a suspicion of who ended first until all hosts have been heard, which makes it certain or does not.
constexpr std::chrono::seconds kCertaintyPatience{2};
constexpr absl::Duration kVerdictCallLimit = absl::Milliseconds(500);

// As a shell in between gives it, too.
bool WasKilled(int wait_status) {
  return WIFSIGNALED(wait_status) || WEXITSTATUS(wait_status) > kExitSignalBase;
}

// On a terminal broken between words, where the line would be broken anyhow; a log keeps one line.
std::string OnScreen(const std::string& text) {
  constexpr size_t kProgram = sizeof "c4 run: " - 1;
  constexpr size_t kIndent = 4;
  const int columns = ScreenOf(stderr).columns;
  if (columns == 0 || TextColumns(text) + kProgram <= static_cast<size_t>(columns)) return text;
  return Wrapped(text, static_cast<size_t>(columns) - kProgram, kIndent);
}

bool TellsOfAnEnd(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_CRASH || verdict.syndrome() == v1::SYNDROME_MISMATCH;
}

bool IsCertainOfAnEnd(const v1::Verdict& verdict) {
  return TellsOfAnEnd(verdict) && verdict.state() == v1::VERDICT_STATE_CONFIRMED;
}

}  // namespace

void Launcher::EndBegins(std::string why) {
  if (!why_.empty()) return;
  why_ = std::move(why);
  if (feed_ != nullptr) open_then_ = feed_->Open();
}

void Launcher::TellNews() {
  if (feed_ == nullptr) return;
  const int64_t now_unix_ns = absl::GetCurrentTimeNanos();
  for (const v1::Verdict& verdict : feed_->Take()) {
    // Everybody leaves: that somebody is not there is no news any more.
    if (interrupted_ || ending_daemons_) continue;
    report_(OnScreen(absl::StrCat(ClockText(now_unix_ns, now_unix_ns), " ", service::VerdictHead(verdict))));
  }
}

// Of a rank that was killed only the master knows that nobody died first, and it needs a moment. Of a job
// that was told to end (a signal, its time limit) what was open before that is what counts.
std::vector<v1::Verdict> Launcher::VerdictsAtEnd() {
  if (!outcome_.failed.has_value() || interrupted_) return open_then_;
  const bool killed = WasKilled(outcome_.failed->wait_status);
  const Clock::time_point until = failed_at_ + (killed ? kVerdictPatience : kFailurePatience);
  MasterOptions master;
  master.job = plan_.job;
  master.base_dir = options_.base_dir;
  std::vector<v1::Verdict> verdicts;
  std::optional<Clock::time_point> suspected_at;
  for (bool told = false; !told && !interrupted_;) {
    const absl::StatusOr<std::unique_ptr<MasterClient>> client = ConnectToMaster(master);
    if (client.ok()) {
      const absl::StatusOr<v1::GetStatusReply> status = (*client)->GetStatus(kVerdictCallLimit);
      if (status.ok() && status->ranks().empty()) return {};  // the program makes no communicators
      const absl::StatusOr<v1::ListVerdictsReply> reply = (*client)->ListVerdicts(false, kVerdictCallLimit);
      if (reply.ok()) {
        verdicts.assign(reply->verdicts().begin(), reply->verdicts().end());
        told = std::any_of(verdicts.begin(), verdicts.end(), IsCertainOfAnEnd);
        const bool suspected = std::any_of(verdicts.begin(), verdicts.end(), TellsOfAnEnd);
        if (suspected && !suspected_at.has_value()) suspected_at = Clock::now();
        told = told || (suspected && Clock::now() - *suspected_at >= kCertaintyPatience);
      }
    }
    if (Clock::now() >= until) break;
    if (!told) WaitForEvents(milliseconds(100));
    TickDaemons();
  }
  TellNews();
  std::erase_if(verdicts, [](const v1::Verdict& verdict) {
    return verdict.state() != v1::VERDICT_STATE_CONFIRMED && !TellsOfAnEnd(verdict);
  });
  if (verdicts.empty() && killed && !interrupted_) {
    report_(absl::StrCat("the master gave no verdict on rank ", outcome_.failed->rank, " within ",
                         kVerdictPatience.count(), " s"));
  }
  // What tells of an end comes first, then what was wrong before it.
  std::stable_partition(verdicts.begin(), verdicts.end(), TellsOfAnEnd);
  return verdicts;
}

std::string Launcher::EndsText() const {
  std::vector<RankEnd> ends;
  for (size_t i = 0; i < ranks_.size(); ++i) ends.push_back({static_cast<int>(i), ranks_[i].wait_status});
  return outcome_.failed.has_value() ? DescribeEnds(*outcome_.failed, ends) : "";
}

void Launcher::TellEnd() {
  std::vector<v1::Verdict> verdicts;
  if (monitored() && options_.master.empty() && !monitor_failed_) verdicts = VerdictsAtEnd();
  if (verdicts.empty()) return;
  const int64_t now_unix_ns = absl::GetCurrentTimeNanos();
  verdict_ = service::VerdictHead(verdicts.front());
  for (const v1::Verdict& verdict : verdicts) {
    std::string text;
    for (const std::string& line : std::vector<std::string>(
             absl::StrSplit(ShortVerdictText(verdict, now_unix_ns, Screen()), '\n', absl::SkipEmpty()))) {
      const bool first = text.empty();
      absl::StrAppend(&text, first ? "" : "\n  ", OnScreen(std::string(absl::StripAsciiWhitespace(line))));
    }
    report_(text);
  }
  report_(OnScreen(outcome_.failed.has_value() ? EndsText() : why_));
  if (log_ != nullptr) {
    report_(absl::StrCat("the evidence: c4 verdicts --job ", plan_.job, " -v"));
  }
}

// All daemons have ended: what they keep is complete.
void Launcher::KeepRecord() {
  if (log_ == nullptr) return;
  JobRecord& record = log_->record();
  record.ended_unix_ns = absl::GetCurrentTimeNanos();
  record.exit_code = outcome_.exit_code;
  record.incarnation = plan_.incarnation;
  record.verdict = verdict_;
  record.why = outcome_.failed.has_value() ? EndsText() : why_;
  if (record.why.empty()) record.why = ranks_.empty() ? "it never began" : "all ranks ended with 0";
  if (absl::Status written = log_->Write(); !written.ok()) {
    report_(absl::StrCat("warning: how the job ended is not kept: ", std::string(written.message())));
  }
  log_.reset();
}

}  // namespace c4::cli
