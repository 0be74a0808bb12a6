#include "service/verdict_json.h"

#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c4/v1/c4d.pb.h"
#include "service/text.h"

namespace c4::service {
namespace {

using Json = nlohmann::ordered_json;

template <size_t N>
std::string_view Word(const std::array<std::string_view, N>& words, size_t number) {
  return number < N ? words[number] : std::string_view("unknown");
}

double UnixSeconds(int64_t unix_ns) {
  // In two parts: a double holds nanoseconds since 1970 only to some 200 of them.
  const int64_t whole_s = unix_ns / 1'000'000'000;
  return static_cast<double>(whole_s) + static_cast<double>(unix_ns % 1'000'000'000) / 1e9;
}

Json SecondsOrNull(int64_t unix_ns) {
  return unix_ns == 0 ? Json(nullptr) : Json(UnixSeconds(unix_ns));
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::detail::error_handler_t::replace);
}

Json ConnectionToJson(const v1::ConnectionRef& ref) {
  return Json{{"from_rank", ref.from_rank()},
              {"to_rank", ref.to_rank()},
              {"from_host", ref.from_host()},
              {"to_host", ref.to_host()},
              {"local", ref.local()},
              {"remote", ref.remote()},
              {"communicator", CommunicatorText(ref.communicator_id())},
              {"channel", ref.channel()},
              {"index", ref.index()},
              {"queue_pair_number", ref.queue_pair_number()},
              {"ratio", ref.ratio()}};
}

Json CulpritToJson(const v1::Culprit& culprit) {
  Json connections = Json::array();
  for (const v1::ConnectionRef& ref : culprit.connections()) connections.push_back(ConnectionToJson(ref));
  Json candidates = Json::array();
  for (const int32_t rank : culprit.candidates()) candidates.push_back(rank);
  Json links = Json::array();
  for (const std::string& link : culprit.links()) links.push_back(link);
  const std::string& host = culprit.host().empty() ? culprit.process().host() : culprit.host();
  return Json{{"kind", CulpritKindWord(culprit.kind())},
              {"rank", culprit.rank()},
              {"host", host},
              {"pid", culprit.process().pid()},
              {"boot_id", culprit.process().boot_id()},
              {"start_time_ticks", culprit.process().start_time_ticks()},
              {"process_state", ProcessStateWord(culprit.state())},
              {"wait_channel", culprit.wait_channel()},
              {"last_call", culprit.last_call()},
              {"nic", culprit.nic()},
              {"connections", std::move(connections)},
              {"candidates", std::move(candidates)},
              {"cable", culprit.cable()},
              {"links", std::move(links)}};
}

Json SignToJson(const v1::HardwareSign& sign) {
  return Json{{"host", sign.host()},       {"kind", sign.kind()},
              {"device", sign.device()},   {"number", sign.number()},
              {"text", sign.text()},       {"times", std::max(1U, sign.times())},
              {"address", sign.address()}, {"unix_s", UnixSeconds(sign.unix_ns())}};
}

Json MoveToJson(const v1::MovedQueuePair& move) {
  return Json{{"unix_s", UnixSeconds(move.unix_ns())},
              {"role", move.role()},
              {"back", move.back()},
              {"from_rank", move.from_rank()},
              {"to_rank", move.to_rank()},
              {"communicator", CommunicatorText(move.communicator_id())},
              {"channel", move.channel()},
              {"index", move.index()},
              {"local", move.local()},
              {"new_local", move.new_local()},
              {"links", std::vector<std::string>(move.links().begin(), move.links().end())},
              {"new_links", std::vector<std::string>(move.new_links().begin(), move.new_links().end())}};
}

Json InterventionToJson(const v1::Intervention& intervention) {
  Json moves = Json::array();
  for (const v1::MovedQueuePair& move : intervention.moves()) moves.push_back(MoveToJson(move));
  return Json{{"id", intervention.id()},
              {"begun_unix_s", UnixSeconds(intervention.begun_unix_ns())},
              {"ended_unix_s", SecondsOrNull(intervention.ended_unix_ns())},
              {"outcome", intervention.outcome()},
              {"lines", std::vector<std::string>(intervention.lines().begin(), intervention.lines().end())},
              {"moves", std::move(moves)}};
}

Json FailSlowToJson(const v1::FailSlow& facts) {
  Json verdicts = Json::array();
  for (const std::string& id : facts.verdicts()) verdicts.push_back(id);
  Json groups = Json::array();
  for (const v1::SlowGroup& group : facts.groups()) {
    Json ranks = Json::array();
    for (const int32_t rank : group.ranks()) ranks.push_back(rank);
    groups.push_back(Json{{"kind", group.kind()},
                          {"ranks", std::move(ranks)},
                          {"communicator", CommunicatorText(group.communicator_id())},
                          {"ratio", group.ratio()},
                          {"seconds", group.seconds()},
                          {"median_seconds", group.median_seconds()},
                          {"of", group.of()}});
  }
  return Json{{"slowdown", facts.slowdown()},
              {"before_s", facts.before_s()},
              {"after_s", facts.after_s()},
              {"creeping", facts.creeping()},
              {"cause", FailSlowCauseWord(facts.cause())},
              {"relief_unix_s", SecondsOrNull(facts.relief_unix_ns())},
              {"iterations", facts.iterations()},
              {"lost_s", facts.lost_s()},
              {"lost_rank_s", facts.lost_rank_s()},
              {"ranks", facts.ranks()},
              {"ranks_watched", facts.ranks_watched()},
              {"known_from", facts.known_from()},
              {"verdicts", std::move(verdicts)},
              {"groups", std::move(groups)}};
}

Json VerdictToJson(const v1::Verdict& verdict) {
  Json waiting = Json::array();
  for (const uint32_t rank : verdict.waiting()) waiting.push_back(rank);
  Json evidence = Json::array();
  for (const v1::Evidence& item : verdict.evidence()) {
    evidence.push_back(Json{{"kind", item.kind()}, {"text", item.text()}});
  }
  Json hardware = Json::array();
  for (const v1::HardwareSign& sign : verdict.hardware()) hardware.push_back(SignToJson(sign));
  Json interventions = Json::array();
  for (const v1::Intervention& one : verdict.interventions()) {
    interventions.push_back(InterventionToJson(one));
  }
  Json json{{"id", verdict.id()},
            {"job", verdict.job()},
            {"syndrome", SyndromeWord(verdict.syndrome())},
            {"state", VerdictStateWord(verdict.state())},
            {"culprit", CulpritToJson(verdict.culprit())},
            {"communicator", CommunicatorText(verdict.communicator_id())},
            {"operation", verdict.operation()},
            {"waiting", std::move(waiting)},
            {"confidence", verdict.confidence()},
            {"since_unix_s", UnixSeconds(verdict.since_unix_ns())},
            {"suspected_unix_s", UnixSeconds(verdict.suspected_unix_ns())},
            {"confirmed_unix_s", SecondsOrNull(verdict.confirmed_unix_ns())},
            {"cleared_unix_s", SecondsOrNull(verdict.cleared_unix_ns())},
            {"confirmed_by", verdict.confirmed_by()},
            {"policy_version", verdict.policy_version()},
            {"evidence", std::move(evidence)},
            {"hardware", std::move(hardware)},
            {"interventions", std::move(interventions)},
            {"suggested_action", verdict.suggested_action()}};
  if (verdict.has_fail_slow()) json["fail_slow"] = FailSlowToJson(verdict.fail_slow());
  return json;
}

Json AgentToJson(const v1::AgentStatus& agent) {
  return Json{{"host", agent.host()},
              {"last_batch_age_s", static_cast<double>(agent.last_batch_age_ns()) / 1e9},
              {"batches", agent.batches()},
              {"batches_dropped", agent.batches_dropped()},
              {"version", agent.version()},
              {"clock_error_s",
               agent.has_clock_error_ns() ? Json(static_cast<double>(agent.clock_error_ns()) / 1e9) : Json()},
              {"segments_refused", agent.segments_refused()},
              {"refusal", agent.refusal()}};
}

Json RankToJson(const v1::RankStatus& rank) {
  return Json{{"rank", rank.rank()},
              {"incarnation", rank.incarnation()},
              {"host", rank.process().host()},
              {"pid", rank.process().pid()},
              {"boot_id", rank.process().boot_id()},
              {"start_time_ticks", rank.process().start_time_ticks()},
              {"process_state", ProcessStateWord(rank.health().state())},
              {"process_state_age_s", static_cast<double>(rank.health().state_age_ns()) / 1e9},
              {"wait_channel", rank.health().wait_channel()},
              {"communicator", CommunicatorText(rank.communicator_id())},
              {"called", rank.called()},
              {"started", rank.started()},
              {"finished", rank.finished()}};
}

// "rank 1 to rank 2, rank 1 to rank 3 and 4 more queue pairs".
std::string ConnectionsText(const v1::Culprit& culprit) {
  constexpr size_t kMaxPairs = 4;
  std::vector<std::string> pairs;
  for (const v1::ConnectionRef& ref : culprit.connections()) {
    const std::string pair = Concat("rank ", ref.from_rank(), " to rank ", ref.to_rank());
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
  }
  const size_t more = pairs.size() > kMaxPairs ? pairs.size() - kMaxPairs : 0;
  if (more != 0) pairs.resize(kMaxPairs);
  std::string text =
      Concat(culprit.connections_size(), culprit.connections_size() == 1 ? " queue pair" : " queue pairs",
             " (", absl::StrJoin(pairs, ", "));
  if (more != 0) absl::StrAppend(&text, " and ", more, " more pairs of ranks");
  return text + ")";
}

// "leaf0<spine1" and "leaf0>spine1" are the two directions of one cable, which is named once.
std::string CablesText(const v1::Culprit& culprit) {
  std::vector<std::string> cables;
  for (std::string cable : culprit.links()) {
    if (const size_t mark = cable.find_first_of("<>"); mark != std::string::npos) cable[mark] = '-';
    if (std::find(cables.begin(), cables.end(), cable) == cables.end()) cables.push_back(std::move(cable));
  }
  return Concat(cables.size() == 1 ? "perhaps the link " : "one of the links ", absl::StrJoin(cables, ", "));
}

std::string CulpritName(const v1::Culprit& culprit) {
  switch (culprit.kind()) {
    case v1::CULPRIT_KIND_NODE:
      return Concat("node ", culprit.host());
    case v1::CULPRIT_KIND_NIC:
      return Concat("NIC ", culprit.nic(), " of ", culprit.host());
    case v1::CULPRIT_KIND_CONNECTION:
      return ConnectionsText(culprit);
    case v1::CULPRIT_KIND_LINK:
      return Concat("link ", culprit.cable(), ", over which go ", ConnectionsText(culprit));
    case v1::CULPRIT_KIND_AMBIGUOUS: {
      if (culprit.links_size() != 0) {
        return Concat("ambiguous, ", CablesText(culprit), ", over which go ", ConnectionsText(culprit));
      }
      std::vector<uint32_t> ranks;
      for (const int32_t rank : culprit.candidates()) {
        if (rank >= 0) ranks.push_back(static_cast<uint32_t>(rank));
      }
      if (ranks.empty() && culprit.connections_size() == 0) return "culprit not known";
      return ranks.empty() ? std::string("ambiguous") : Concat("ambiguous, one of ", RankListText(ranks));
    }
    default:
      break;
  }
  if (culprit.process().pid() == 0) return Concat("rank ", culprit.rank());
  const std::string process = Concat("(pid ", culprit.process().pid(), " on ", culprit.process().host(), ")");
  if (culprit.rank() < 0) return Concat("a process without a rank ", process);
  return Concat("rank ", culprit.rank(), " ", process);
}

bool IsSlow(const v1::Verdict& verdict) {
  return verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_NON_COMMUNICATION_SLOW ||
         verdict.syndrome() == v1::SYNDROME_FAIL_SLOW;
}

// "1.32 times slower by computation: ".
std::string SlowdownText(const v1::FailSlow& facts) {
  std::string text = absl::StrFormat("%.2f times slower", facts.slowdown());
  if (facts.cause() != v1::FAIL_SLOW_CAUSE_UNSPECIFIED) {
    absl::StrAppend(&text, " by ", std::string(FailSlowCauseWord(facts.cause())));
  }
  return text;
}

}  // namespace

std::string_view SyndromeWord(int syndrome) {
  static constexpr std::array<std::string_view, 10> kWords = {"unspecified",
                                                              "communication hang",
                                                              "non-communication hang",
                                                              "communication slow",
                                                              "non-communication slow",
                                                              "crash",
                                                              "lost node",
                                                              "mismatch",
                                                              "never joined",
                                                              "path lost"};
  if (syndrome == v1::SYNDROME_FAIL_SLOW) return "fail-slow";
  return Word(kWords, static_cast<size_t>(syndrome));
}

std::string_view FailSlowCauseWord(int cause) {
  static constexpr std::array<std::string_view, 4> kWords = {"unknown", "computation", "communication",
                                                             "computation and communication"};
  return Word(kWords, static_cast<size_t>(cause));
}

std::string_view VerdictStateWord(int state) {
  static constexpr std::array<std::string_view, 4> kWords = {"unspecified", "suspected", "confirmed",
                                                             "cleared"};
  return Word(kWords, static_cast<size_t>(state));
}

std::string_view CulpritKindWord(int kind) {
  static constexpr std::array<std::string_view, 7> kWords = {"unspecified", "rank",      "node", "nic",
                                                             "connection",  "ambiguous", "link"};
  return Word(kWords, static_cast<size_t>(kind));
}

std::string_view ProcessStateWord(int process_state) {
  static constexpr std::array<std::string_view, 8> kWords = {"unknown", "running", "sleeping", "blocked",
                                                             "stopped", "traced",  "zombie",   "gone"};
  return Word(kWords, static_cast<size_t>(process_state));
}

std::string_view FunctionWord(int function) {
  static constexpr std::array<std::string_view, 11> kWords = {
      "operation",  "all_reduce", "reduce",  "broadcast", "all_gather", "reduce_scatter",
      "all_to_all", "gather",     "scatter", "send",      "recv"};
  return Word(kWords, static_cast<size_t>(function));
}

std::string_view DataTypeWord(uint32_t data_type) {
  static constexpr std::array<std::string_view, 12> kWords = {
      "int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
      "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return Word(kWords, data_type);
}

std::string_view ReductionWord(uint32_t reduction) {
  static constexpr std::array<std::string_view, 5> kWords = {"sum", "prod", "max", "min", "avg"};
  return reduction < kWords.size() ? kWords[reduction] : std::string_view("custom");
}

std::string RankListText(std::span<const uint32_t> ranks) {
  constexpr size_t kMaxRuns = 12;
  if (ranks.empty()) return "no rank";
  std::vector<std::string> runs;
  size_t listed = 0;
  for (size_t first = 0; first < ranks.size() && runs.size() < kMaxRuns;) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - first >= 2) {
      runs.push_back(Concat(ranks[first], "-", ranks[last]));
    } else {
      last = first;
      runs.push_back(Concat(ranks[first]));
    }
    first = listed = last + 1;
  }
  std::string text = Concat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(runs, ", "));
  if (listed < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - listed, " more");
  return text;
}

std::string SecondsText(int64_t duration_ns) {
  return absl::StrFormat("%.1f s", static_cast<double>(std::max<int64_t>(duration_ns, 0)) / 1e9);
}

std::string CommunicatorText(uint64_t communicator_id) {
  return absl::StrFormat("0x%016x", communicator_id);
}

std::string VerdictJson(const v1::Verdict& verdict, int indent) {
  return Dump(VerdictToJson(verdict), indent);
}

std::string VerdictListJson(const v1::ListVerdictsReply& reply, int indent) {
  Json verdicts = Json::array();
  for (const v1::Verdict& verdict : reply.verdicts()) verdicts.push_back(VerdictToJson(verdict));
  return Dump(Json{{"job", reply.job()},
                   {"master_epoch", CommunicatorText(reply.master_epoch())},
                   {"agents", reply.has_agents() ? Json(reply.agents()) : Json()},
                   {"processes_unwatched", reply.processes_unwatched()},
                   {"unwatched_why", reply.unwatched_why()},
                   {"verdicts", std::move(verdicts)}},
              indent);
}

std::string StatusJson(const v1::GetStatusReply& reply, int indent) {
  Json agents = Json::array();
  for (const v1::AgentStatus& agent : reply.agents()) agents.push_back(AgentToJson(agent));
  Json ranks = Json::array();
  for (const v1::RankStatus& rank : reply.ranks()) ranks.push_back(RankToJson(rank));
  Json limits = Json::array();
  for (const v1::ReachedLimit& limit : reply.limits()) {
    limits.push_back(Json{{"name", limit.name()}, {"sentence", limit.sentence()}});
  }
  return Dump(Json{{"job", reply.job()},
                   {"master_epoch", CommunicatorText(reply.master_epoch())},
                   {"policy_version", reply.policy_version()},
                   {"policy_fault", reply.policy_fault()},
                   {"report_interval_s", static_cast<double>(reply.report_interval_ns()) / 1e9},
                   {"limits", std::move(limits)},
                   {"agents", std::move(agents)},
                   {"ranks", std::move(ranks)}},
              indent);
}

std::string VerdictHead(const v1::Verdict& verdict) {
  std::string line = Concat(absl::AsciiStrToUpper(std::string(VerdictStateWord(verdict.state()))), " ",
                            std::string(SyndromeWord(verdict.syndrome())), ": ",
                            verdict.has_fail_slow() ? SlowdownText(verdict.fail_slow()) + ", " : "",
                            CulpritName(verdict.culprit()));
  if (verdict.culprit().kind() != v1::CULPRIT_KIND_RANK || verdict.culprit().process().pid() == 0)
    return line;
  if (verdict.syndrome() == v1::SYNDROME_MISMATCH) {
    // What became of the process since is not what it is named for.
    absl::StrAppend(&line, " called something else");
  } else {
    const bool sends_slowly = verdict.syndrome() == v1::SYNDROME_COMMUNICATION_SLOW;
    absl::StrAppend(&line, verdict.cleared_unix_ns() != 0 ? " was " : " is ",
                    sends_slowly      ? "slow to send and to receive"
                    : IsSlow(verdict) ? "late"
                                      : std::string(ProcessStateWord(verdict.culprit().state())));
  }
  return line;
}

std::string WaitingText(const v1::Verdict& verdict) {
  if (verdict.waiting().empty()) return "";
  const std::vector<uint32_t> waiting(verdict.waiting().begin(), verdict.waiting().end());
  std::string text = Concat(RankListText(waiting), verdict.cleared_unix_ns() != 0 ? " waited"
                                                   : waiting.size() == 1          ? " waits"
                                                                                  : " wait");
  if (!IsSlow(verdict)) absl::StrAppend(&text, " in operation ", verdict.operation());
  return text;
}

std::string VerdictLine(const v1::Verdict& verdict, int64_t now_unix_ns) {
  const std::string waiting = WaitingText(verdict);
  const int64_t end_unix_ns = verdict.cleared_unix_ns() != 0 ? verdict.cleared_unix_ns() : now_unix_ns;
  return Concat(VerdictHead(verdict), waiting.empty() ? "" : "; ", waiting, " for ",
                SecondsText(end_unix_ns - verdict.since_unix_ns()));
}

std::string VerdictText(const v1::Verdict& verdict, int64_t now_unix_ns) {
  std::string text = Concat(VerdictLine(verdict, now_unix_ns), "\n");
  absl::StrAppend(&text, "  verdict ", verdict.id(), " of job ", verdict.job(),
                  verdict.communicator_id() == 0 ? "" : ", communicator ",
                  verdict.communicator_id() == 0 ? "" : CommunicatorText(verdict.communicator_id()),
                  ", confidence ", absl::StrFormat("%.2f", verdict.confidence()),
                  verdict.confirmed_by().empty() ? "" : Concat(", confirmed by: ", verdict.confirmed_by()),
                  "\n");
  for (const v1::Evidence& item : verdict.evidence()) {
    absl::StrAppend(&text, "  ", item.kind(), ": ", item.text(), "\n");
  }
  if (!verdict.suggested_action().empty() && verdict.cleared_unix_ns() == 0) {
    absl::StrAppend(&text, "  what to do: ", verdict.suggested_action(), "\n");
  }
  return text;
}

}  // namespace c4::service
