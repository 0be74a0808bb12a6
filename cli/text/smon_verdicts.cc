#include "cli/text/smon_verdicts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/whatif/report_reader.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

bool Overlaps(const v1::Verdict& verdict, const v1::ProfilingSession& session) {
  const bool cleared = verdict.state() == v1::VERDICT_STATE_CLEARED;
  return verdict.confirmed_unix_ns() != 0 && verdict.since_unix_ns() <= session.ended_unix_ns() &&
         (!cleared || verdict.cleared_unix_ns() >= session.begun_unix_ns());
}

// The ranks that the session blames as workers.
std::set<int32_t> SlowWorkers(const v1::ProfilingSession& session) {
  std::set<int32_t> ranks;
  for (const v1::SuspectedCause& cause : session.causes()) {
    if (cause.cause() == "worker") ranks.insert(cause.ranks().begin(), cause.ranks().end());
  }
  return ranks;
}

// The slow-down of a rank's worker; nullopt: no worker of the report is that rank.
std::optional<double> SlowdownOf(int32_t rank, const whatif::WorkerMap& map) {
  const auto found = std::find(map.ranks.begin(), map.ranks.end(), rank);
  if (found == map.ranks.end()) return std::nullopt;
  return map.slowdown[static_cast<size_t>(found - map.ranks.begin())];
}

// Of a rank for which another of its tensor or context group stands.
std::string OfAGroup(int32_t rank, int32_t stands, const v1::ProfilingSession& session,
                     const whatif::WorkerMap& map) {
  if (SlowWorkers(session).contains(stands)) {
    return absl::StrFormat("the session agrees: the group of rank %d, for which rank %d stands, is slow",
                           rank, stands);
  }
  return absl::StrFormat(
      "the session does not blame its group, for which rank %d stands (slow-down %.2f): no collective within "
      "a marked computation waited for rank %d by 5 %% of the computations' time",
      stands, SlowdownOf(stands, map).value_or(1), rank);
}

std::string OfARank(int32_t rank, const v1::GetSessionReply& reply) {
  if (SlowWorkers(reply.session()).contains(rank)) return "the session agrees: that worker is slow";
  const absl::StatusOr<whatif::WorkerMap> map = whatif::ReadWorkerMap(reply.report_json(), std::nullopt);
  if (!map.ok()) return "the session's report is no longer kept, or there is none: nothing to compare";
  if (const auto group = map->standing_for.find(rank); group != map->standing_for.end()) {
    return OfAGroup(rank, group->second, reply.session(), *map);
  }
  const std::optional<double> slowdown = SlowdownOf(rank, *map);
  if (!slowdown.has_value()) {
    return absl::StrCat(
        "no contradiction: the session takes one rank of each tensor or context group, and rank ", rank,
        " is none of them; what it costs shows at the rank of its group that waits for it");
  }
  return absl::StrFormat(
      "the session does not blame it (slow-down %.2f): it counts what the program does from the begin to "
      "the end of a step, the verdict also what lies between steps, such as checkpoints and evaluations",
      *slowdown);
}

std::string Comparison(const v1::Verdict& verdict, const v1::GetSessionReply& reply) {
  switch (verdict.syndrome()) {
    case v1::SYNDROME_NON_COMMUNICATION_SLOW:
      return OfARank(verdict.culprit().rank(), reply);
    case v1::SYNDROME_COMMUNICATION_SLOW:
    case v1::SYNDROME_PATH_LOST:
      return "the network is no worker: the session has it as communication and launch delay";
    case v1::SYNDROME_FAIL_SLOW:
      return "the session tells what an iteration loses to stragglers, the verdict that it takes longer "
             "than before";
    default:
      return "steps that stood still are not complete, and the session has only complete ones";
  }
}

}  // namespace

std::string VerdictsBeside(const v1::GetSessionReply& reply, const v1::ListVerdictsReply& verdicts) {
  const v1::ProfilingSession& session = reply.session();
  std::string text;
  for (const v1::Verdict& verdict : verdicts.verdicts()) {
    if (!Overlaps(verdict, session)) continue;
    absl::StrAppend(&text, "  ", service::VerdictHead(verdict), "\n    ", Comparison(verdict, reply), "\n");
  }
  if (!text.empty()) return absl::StrCat("Verdicts of that time (c4 verdicts)\n", text);
  if (SlowWorkers(session).empty()) return "";
  return "c4 verdicts names nobody in that time: it wants one rank's own time to be 1.8 times what is\n"
         "usual for it, or from the start twice the others', by a fifth of all time. Several slow ranks,\n"
         "or a little slowness, are for this report\n";
}

}  // namespace c4::cli
