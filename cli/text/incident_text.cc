#include "cli/text/incident_text.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c4d_master/hardware_log.h"
#include "c4d_master/likely_cause.h"
#include "cli/text/screen.h"
#include "cli/text/verdict_exit.h"
#include "cli/text/verdict_text.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kWidth = 80;
constexpr size_t kIndent = 2;
constexpr size_t kMostEvidence = 12;
constexpr size_t kMostPaths = 8;
constexpr int kMostMoves = 24;

// A paragraph of the page, its lines after the first further in.
void Add(std::string* page, const std::string& text, size_t further = kIndent) {
  absl::StrAppend(page, std::string(kIndent, ' '),
                  Wrapped(text, kWidth - kIndent - further, kIndent + further), "\n");
}

// Whose hardware was looked at.
std::vector<std::string> HostsOf(const v1::Verdict& verdict) {
  std::set<std::string> hosts;
  const v1::Culprit& culprit = verdict.culprit();
  hosts.insert(culprit.host().empty() ? culprit.process().host() : culprit.host());
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    hosts.insert(ref.from_host());
    hosts.insert(ref.to_host());
  }
  for (const v1::HardwareSign& sign : verdict.hardware()) hosts.insert(sign.host());
  hosts.erase("");
  return {hosts.begin(), hosts.end()};
}

std::string WhenText(const v1::Verdict& verdict, int64_t now_unix_ns) {
  std::string text = absl::StrCat("onset ", ClockText(verdict.since_unix_ns(), now_unix_ns));
  const auto add = [&](const char* word, int64_t unix_ns) {
    if (unix_ns == 0) return;
    absl::StrAppend(
        &text, ", ", word,
        absl::StrFormat(" %+.1f s", static_cast<double>(unix_ns - verdict.since_unix_ns()) / 1e9));
  };
  add("suspected", verdict.suspected_unix_ns());
  add("confirmed", verdict.confirmed_unix_ns());
  add("cleared", verdict.cleared_unix_ns());
  return text;
}

void AddHardware(const v1::Verdict& verdict, std::string* page) {
  const std::vector<std::string> hosts = HostsOf(verdict);
  const std::string names = hosts.empty()      ? std::string("no host")
                            : hosts.size() > 4 ? absl::StrCat(hosts.size(), " hosts")
                                               : absl::StrJoin(hosts, ", ");
  absl::StrAppend(page, "\n",
                  Wrapped(absl::StrFormat("HARDWARE of %s, from %d s before the onset to %d s after", names,
                                          c4d::kHardwareBeforeNs / c4d::kSecondNs,
                                          c4d::kHardwareAfterNs / c4d::kSecondNs),
                          kWidth, kIndent),
                  "\n");
  for (const v1::HardwareSign& sign : verdict.hardware()) {
    Add(page, absl::StrCat(sign.kind(), ": ", c4d::SignText(sign, verdict.since_unix_ns())));
  }
  if (verdict.hardware().empty()) Add(page, "nothing was told");
}

void AddPaths(const std::vector<IncidentPath>& paths, std::string* page) {
  if (paths.empty()) return;
  absl::StrAppend(page, "\nPATHS as C4P knows them now\n");
  for (size_t i = 0; i < std::min(paths.size(), kMostPaths); ++i) {
    const IncidentPath& path = paths[i];
    Add(page, absl::StrCat("rank ", path.from_rank, " to rank ", path.to_rank, ", queue pair ", path.index,
                           ": ", path.links.empty() ? "not known" : absl::StrJoin(path.links, " ")));
  }
  if (paths.size() > kMostPaths) Add(page, absl::StrCat("and ", paths.size() - kMostPaths, " more: --json"));
}

std::string LinksText(const google::protobuf::RepeatedPtrField<std::string>& links) {
  return links.empty() ? std::string("a way that is not known") : absl::StrJoin(links, " ");
}

// Which queue pairs were moved to see whom the slowness follows, and what came of it.
void AddInterventions(const v1::Verdict& verdict, int64_t now_unix_ns, std::string* page) {
  for (const v1::Intervention& one : verdict.interventions()) {
    absl::StrAppend(page, "\nQUEUE PAIRS WERE MOVED\n");
    const std::string end =
        one.ended_unix_ns() == 0
            ? "it is under way"
            : absl::StrFormat("over after %.1f s: %s",
                              static_cast<double>(one.ended_unix_ns() - one.begun_unix_ns()) / 1e9,
                              one.outcome());
    Add(page, absl::StrCat("experiment ", one.id(), " from ", ClockText(one.begun_unix_ns(), now_unix_ns),
                           ", ", end));
    for (const std::string& line : one.lines()) Add(page, line);
    for (int i = 0; i < std::min<int>(one.moves_size(), kMostMoves); ++i) {
      const v1::MovedQueuePair& move = one.moves(i);
      Add(page, absl::StrFormat("%+.1f s %s, rank %d to rank %d, channel %d, queue pair %d: %s%s",
                                static_cast<double>(move.unix_ns() - one.begun_unix_ns()) / 1e9, move.role(),
                                move.from_rank(), move.to_rank(), move.channel(), move.index(),
                                move.back() ? "back to " : "to ", LinksText(move.new_links())));
    }
    if (one.moves_size() > kMostMoves) {
      Add(page, absl::StrCat("and ", one.moves_size() - kMostMoves, " more moves: --json"));
    }
  }
}

}  // namespace

absl::StatusOr<const v1::Verdict*> FindVerdict(const v1::ListVerdictsReply& reply, const std::string& id) {
  const v1::Verdict* found = nullptr;
  if (id.empty()) {
    for (const v1::Verdict& verdict : reply.verdicts()) {
      const auto rank_of = [](const v1::Verdict& v) {
        return std::pair(v.confirmed_unix_ns() != 0, v.since_unix_ns());
      };
      if (found == nullptr || rank_of(verdict) >= rank_of(*found)) found = &verdict;
    }
    if (found == nullptr) return absl::NotFoundError(absl::StrCat("job ", reply.job(), " has no verdict"));
    return found;
  }
  std::vector<std::string> ids;
  for (const v1::Verdict& verdict : reply.verdicts()) {
    if (verdict.id() == id) return &verdict;
    if (!absl::EndsWith(verdict.id(), absl::StrCat("-", id))) continue;
    found = &verdict;
    ids.push_back(verdict.id());
  }
  if (ids.size() == 1) return found;
  return absl::NotFoundError(ids.empty() ? absl::StrCat("job ", reply.job(), " has no verdict ", id,
                                                        "; `c4 verdicts --all -v` shows their ids")
                                         : absl::StrCat("several verdicts of job ", reply.job(), " end in ",
                                                        id, ": ", absl::StrJoin(ids, ", ")));
}

std::vector<IncidentPath> PathsOf(const v1::Verdict& verdict, const v1::ListPathsReply& paths) {
  std::vector<IncidentPath> result;
  for (const v1::ConnectionRef& ref : verdict.culprit().connections()) {
    for (const v1::ConnectionStatus& status : paths.connections()) {
      if (status.communicator_id() != ref.communicator_id() || status.from_rank() != ref.from_rank() ||
          status.to_rank() != ref.to_rank() || status.channel() != ref.channel()) {
        continue;
      }
      for (const v1::QueuePairStatus& pair : status.queue_pairs()) {
        if (pair.index() != ref.index()) continue;
        result.push_back(
            {ref.from_rank(), ref.to_rank(), ref.index(), {pair.links().begin(), pair.links().end()}});
      }
    }
  }
  return result;
}

std::string IncidentText(const v1::Verdict& verdict, const std::vector<IncidentPath>& paths,
                         int64_t now_unix_ns) {
  std::string page = absl::StrCat("INCIDENT ", verdict.id(), " of job ", verdict.job(), "\n");
  Add(&page, service::VerdictHead(verdict));
  Add(&page, WhenText(verdict, now_unix_ns));
  if (const std::string waiting = service::WaitingText(verdict); !waiting.empty()) Add(&page, waiting);
  Add(&page,
      absl::StrCat(verdict.confirmed_by().empty() ? "not confirmed"
                                                  : absl::StrCat("confirmed by: ", verdict.confirmed_by()),
                   absl::StrFormat(", confidence %.2f", verdict.confidence())));

  const c4d::LikelyCause cause = c4d::LikelyCauseOf(verdict);
  absl::StrAppend(&page, "\nLIKELY CAUSE\n");
  Add(&page, cause.text);
  Add(&page, cause.error_class.empty() ? std::string("class: none of the C4 paper's table 1")
                                       : absl::StrCat("class: ", cause.error_class));
  AddHardware(verdict, &page);

  absl::StrAppend(&page, "\nEVIDENCE\n");
  size_t shown = 0;
  size_t more = 0;
  for (const v1::Evidence& item : verdict.evidence()) {
    if (item.kind() == "hardware") continue;  // stands above
    if (shown == kMostEvidence) {
      ++more;
      continue;
    }
    ++shown;
    Add(&page, absl::StrCat(item.kind(), ": ", item.text()));
  }
  if (more != 0) Add(&page, absl::StrCat("and ", more, " more: `c4 verdicts --all -v`"));
  AddInterventions(verdict, now_unix_ns, &page);
  AddPaths(paths, &page);
  if (!verdict.suggested_action().empty()) {
    absl::StrAppend(&page, IsOpen(verdict) ? "\nWHAT TO DO\n" : "\nWHAT WAS TO DO\n");
    Add(&page, verdict.suggested_action());
  }
  return page;
}

std::string IncidentJson(const v1::Verdict& verdict, const std::vector<IncidentPath>& paths) {
  const c4d::LikelyCause cause = c4d::LikelyCauseOf(verdict);
  Json listed = Json::array();
  for (const IncidentPath& path : paths) {
    listed.push_back({{"from_rank", path.from_rank},
                      {"to_rank", path.to_rank},
                      {"index", path.index},
                      {"links", path.links}});
  }
  const Json json = {{"verdict", Json::parse(service::VerdictJson(verdict))},
                     {"likely_cause",
                      {{"class", cause.error_class.empty() ? Json() : Json(cause.error_class)},
                       {"text", cause.text},
                       {"sign", cause.sign.has_value() ? Json(*cause.sign) : Json()}}},
                     {"hosts", HostsOf(verdict)},
                     {"paths", std::move(listed)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace c4::cli
