#include "cli/text/verdict_text.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/text/status_text.h"
#include "cli/text/verdict_exit.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

// The job's ranks that a verdict blames, or may blame.
std::set<int32_t> Blamed(const v1::Culprit& culprit) {
  std::set<int32_t> ranks;
  if (culprit.kind() == v1::CULPRIT_KIND_RANK && culprit.rank() >= 0) ranks.insert(culprit.rank());
  ranks.insert(culprit.candidates().begin(), culprit.candidates().end());
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    ranks.insert(ref.from_rank());
    ranks.insert(ref.to_rank());
  }
  return ranks;
}

std::string HostOf(const v1::Culprit& culprit) {
  return culprit.host().empty() ? culprit.process().host() : culprit.host();
}

int Urgency(const v1::Verdict& verdict) {
  if (verdict.state() == v1::VERDICT_STATE_CONFIRMED) return 0;
  return IsOpen(verdict) ? 1 : 2;
}

Colour StateColour(const v1::Verdict& verdict) {
  constexpr Colour kColours[] = {Colour::kRed, Colour::kYellow, Colour::kGreen};
  return kColours[Urgency(verdict)];
}

std::string SinceText(const v1::Verdict& verdict, int64_t now_unix_ns) {
  const std::string since = ClockText(verdict.since_unix_ns(), now_unix_ns);
  if (IsOpen(verdict)) {
    return absl::StrCat("since ", since, " (", DurationText(now_unix_ns - verdict.since_unix_ns()), ")");
  }
  return absl::StrCat("from ", since, " to ", ClockText(verdict.cleared_unix_ns(), now_unix_ns), " (",
                      DurationText(verdict.cleared_unix_ns() - verdict.since_unix_ns()), "), ",
                      verdict.confirmed_unix_ns() != 0
                          ? absl::StrCat("confirmed at ", ClockText(verdict.confirmed_unix_ns(), now_unix_ns))
                          : "never confirmed");
}

}  // namespace

std::string ClockText(int64_t unix_ns, int64_t now_unix_ns) {
  const absl::TimeZone zone = absl::LocalTimeZone();
  const absl::Time time = absl::FromUnixNanos(unix_ns);
  const bool today = absl::ToCivilDay(time, zone) == absl::ToCivilDay(absl::FromUnixNanos(now_unix_ns), zone);
  return absl::FormatTime(today ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", time, zone);
}

std::string ShortVerdictText(const v1::Verdict& verdict, int64_t now_unix_ns, const Screen& screen) {
  const std::string head = Fit(service::VerdictHead(verdict), screen.columns);
  // The state is the first word.
  const size_t word = std::min(head.find(' '), head.size());
  std::string text = Painted(screen, StateColour(verdict), head.substr(0, word)) +
                     Painted(screen, Colour::kBold, head.substr(word)) + "\n";
  std::string second = absl::StrCat("  ", SinceText(verdict, now_unix_ns));
  if (const std::string waiting = service::WaitingText(verdict); !waiting.empty()) {
    absl::StrAppend(&second, "; ", waiting);
  }
  absl::StrAppend(&text, Fit(second, screen.columns), "\n");
  if (IsOpen(verdict) && !verdict.suggested_action().empty()) {
    absl::StrAppend(&text, Fit(absl::StrCat("  do: ", verdict.suggested_action()), screen.columns), "\n");
  }
  return text;
}

bool ExplainedBy(const v1::Verdict& suspected, const v1::Verdict& confirmed) {
  if (suspected.state() != v1::VERDICT_STATE_SUSPECTED || confirmed.state() != v1::VERDICT_STATE_CONFIRMED) {
    return false;
  }
  const std::string host = HostOf(suspected.culprit());
  const std::set<int32_t> blamed = Blamed(suspected.culprit());
  if (confirmed.culprit().kind() == v1::CULPRIT_KIND_NODE && !host.empty() &&
      host == HostOf(confirmed.culprit())) {
    return true;
  }
  if (blamed.empty()) return false;
  std::set<int32_t> known = Blamed(confirmed.culprit());
  for (const uint32_t rank : confirmed.waiting()) known.insert(static_cast<int32_t>(rank));
  return std::includes(known.begin(), known.end(), blamed.begin(), blamed.end());
}

std::vector<const v1::Verdict*> VerdictsToShow(const v1::ListVerdictsReply& reply, size_t* folded) {
  std::vector<const v1::Verdict*> shown;
  *folded = 0;
  for (const v1::Verdict& verdict : reply.verdicts()) {
    const bool explained = std::any_of(reply.verdicts().begin(), reply.verdicts().end(),
                                       [&](const v1::Verdict& other) { return ExplainedBy(verdict, other); });
    if (explained) {
      ++*folded;
    } else {
      shown.push_back(&verdict);
    }
  }
  std::stable_sort(shown.begin(), shown.end(), [](const v1::Verdict* a, const v1::Verdict* b) {
    if (Urgency(*a) != Urgency(*b)) return Urgency(*a) < Urgency(*b);
    return a->since_unix_ns() > b->since_unix_ns();
  });
  return shown;
}

}  // namespace c4::cli
