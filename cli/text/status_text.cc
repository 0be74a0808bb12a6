#include "cli/text/status_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/text/table.h"
#include "service/verdict_json.h"

namespace c4::cli {
namespace {

// The most ranks that are shown one by one unless somebody asks for it.
constexpr int kMostRanks = 32;

// Of each rank the process that counts: a job that was started again still has those that are gone. Those
// that another process of their rank has outlived are taken out; gives how many.
int TakeOutEarlier(v1::GetStatusReply* status) {
  // Of each rank the shortest time for which a process of it has been gone; 0: one is there.
  std::map<int32_t, int64_t> last_gone_ns;
  const auto gone_ns = [](const v1::RankStatus& rank) {
    return rank.health().state() == v1::PROCESS_STATE_GONE
               ? std::max<int64_t>(rank.health().state_age_ns(), 1)
               : 0;
  };
  for (const v1::RankStatus& rank : status->ranks()) {
    const auto [it, first] = last_gone_ns.emplace(rank.rank(), gone_ns(rank));
    if (!first) it->second = std::min(it->second, gone_ns(rank));
  }
  auto* const ranks = status->mutable_ranks();
  const int before = ranks->size();
  ranks->erase(std::remove_if(ranks->begin(), ranks->end(),
                              [&](const v1::RankStatus& rank) {
                                return rank.rank() >= 0 && gone_ns(rank) > last_gone_ns.at(rank.rank());
                              }),
               ranks->end());
  return before - ranks->size();
}

// The incarnation of all ranks; -1 where they differ, because some are not started again yet.
int64_t CommonIncarnation(const v1::GetStatusReply& status) {
  if (status.ranks().empty()) return 0;
  const uint32_t first = status.ranks(0).incarnation();
  const bool common = std::all_of(status.ranks().begin(), status.ranks().end(),
                                  [&](const auto& rank) { return rank.incarnation() == first; });
  return common ? int64_t{first} : -1;
}

std::string RankTable(const v1::GetStatusReply& status, const Screen& screen) {
  Table table;
  table.columns = {{"RANK"},        {"HOST"},      {"PID", 3},     {"STATE"},    {"FOR", 4},
                   {"NO PROGRESS"}, {"CALLED", 1}, {"STARTED", 2}, {"FINISHED"}, {"COMMUNICATOR", 5}};
  const bool differ = CommonIncarnation(status) < 0;
  if (differ) table.columns.insert(table.columns.begin() + 1, {"INCARNATION"});
  for (const v1::RankStatus& rank : status.ranks()) {
    const v1::ProcessHealth& health = rank.health();
    table.rows.push_back({rank.rank() < 0 ? "?" : absl::StrCat(rank.rank()), rank.process().host(),
                          absl::StrCat(rank.process().pid()),
                          std::string(service::ProcessStateWord(health.state())),
                          DurationText(health.state_age_ns()), DurationText(health.progress_age_ns()),
                          absl::StrCat(rank.called()), absl::StrCat(rank.started()),
                          absl::StrCat(rank.finished()), service::CommunicatorText(rank.communicator_id())});
    std::vector<std::string>& row = table.rows.back();
    if (differ) row.insert(row.begin() + 1, absl::StrCat(rank.incarnation()));
  }
  return table.Text(screen);
}

// The ranks of a node, in one line.
struct NodeLine {
  std::string host;
  std::vector<uint32_t> ranks;
  std::map<std::string, std::vector<uint32_t>> by_state;  // by the state's word
  int64_t most_progress_age_ns = 0;
  uint64_t least_finished = UINT64_MAX;
  uint64_t most_finished = 0;
};

// "1 stopped (rank 12), 7 sleeping": the rarest first; a state that few have comes with who they are.
std::string StatesText(const NodeLine& node) {
  std::vector<std::pair<std::string, std::vector<uint32_t>>> states(node.by_state.begin(),
                                                                    node.by_state.end());
  std::stable_sort(states.begin(), states.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<std::string> parts;
  for (const auto& [state, ranks] : states) {
    std::string part = absl::StrCat(ranks.size(), " ", state);
    if (ranks.size() * 2 < node.ranks.size()) {
      absl::StrAppend(&part, " (", service::RankListText(ranks), ")");
    }
    parts.push_back(std::move(part));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NodeTable(const v1::GetStatusReply& status, const Screen& screen) {
  std::map<std::string, NodeLine, NumbersInOrder> nodes;
  for (const v1::RankStatus& rank : status.ranks()) {
    NodeLine& node = nodes[rank.process().host()];
    node.host = rank.process().host();
    const auto number = static_cast<uint32_t>(std::max(rank.rank(), 0));
    node.ranks.push_back(number);
    node.by_state[std::string(service::ProcessStateWord(rank.health().state()))].push_back(number);
    node.most_progress_age_ns = std::max(node.most_progress_age_ns, rank.health().progress_age_ns());
    node.least_finished = std::min(node.least_finished, rank.finished());
    node.most_finished = std::max(node.most_finished, rank.finished());
  }
  // What most nodes look like: how many ranks, in which states.
  std::map<std::pair<size_t, std::string>, std::vector<NodeLine*>> alike;
  for (auto& [host, node] : nodes) {
    std::sort(node.ranks.begin(), node.ranks.end());
    for (auto& [state, ranks] : node.by_state) std::sort(ranks.begin(), ranks.end());
    alike[{node.ranks.size(), StatesText(node)}].push_back(&node);
  }
  std::vector<std::vector<NodeLine*>> groups;
  groups.reserve(alike.size());
  for (auto& [look, members] : alike) groups.push_back(std::move(members));
  // The odd ones first: they are few.
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  Table table;
  table.columns = {{"NODE"}, {"RANKS", 1}, {"STATES"}, {"NO PROGRESS", 3}, {"FINISHED", 2}};
  for (const std::vector<NodeLine*>& group : groups) {
    std::vector<uint32_t> ranks;
    int64_t most_progress_age_ns = 0;
    uint64_t least_finished = UINT64_MAX;
    uint64_t most_finished = 0;
    for (const NodeLine* node : group) {
      ranks.insert(ranks.end(), node->ranks.begin(), node->ranks.end());
      most_progress_age_ns = std::max(most_progress_age_ns, node->most_progress_age_ns);
      least_finished = std::min(least_finished, node->least_finished);
      most_finished = std::max(most_finished, node->most_finished);
    }
    std::sort(ranks.begin(), ranks.end());
    const bool several = group.size() > 1;
    table.rows.push_back(
        {several ? absl::StrCat(group.front()->host, " and ", group.size() - 1, " alike")
                 : group.front()->host,
         absl::StrCat(ranks.size()), absl::StrCat(several ? "each " : "", StatesText(*group.front())),
         DurationText(most_progress_age_ns),
         least_finished == most_finished ? absl::StrCat(most_finished)
                                         : absl::StrCat(least_finished, "-", most_finished)});
  }
  return table.Text(screen);
}

std::string AgentTable(const v1::GetStatusReply& status, bool by_node, const Screen& screen) {
  if (status.agents().empty()) return "no agent reports yet\n";
  // By node only the agents that somebody should look at are worth a line.
  constexpr int64_t kLateNs = 5'000'000'000;
  Table table;
  table.columns = {{"AGENT ON"}, {"LAST BATCH"},        {"BATCHES", 2},
                   {"DROPPED"},  {"CLOCK KNOWN TO", 1}, {"VERSION", 3}};
  int in_order = 0;
  std::vector<const v1::AgentStatus*> agents;
  for (const v1::AgentStatus& agent : status.agents()) agents.push_back(&agent);
  std::stable_sort(agents.begin(), agents.end(), [](const v1::AgentStatus* a, const v1::AgentStatus* b) {
    return NumbersInOrder()(a->host(), b->host());
  });
  for (const v1::AgentStatus* one : agents) {
    const v1::AgentStatus& agent = *one;
    if (by_node && agent.last_batch_age_ns() < kLateNs && agent.batches_dropped() == 0) {
      ++in_order;
      continue;
    }
    table.rows.push_back({agent.host(), DurationText(agent.last_batch_age_ns()) + " ago",
                          absl::StrCat(agent.batches()), absl::StrCat(agent.batches_dropped()),
                          agent.has_clock_error_ns()
                              ? absl::StrFormat("%.1f ms", static_cast<double>(agent.clock_error_ns()) / 1e6)
                              : "-",
                          agent.version()});
  }
  std::string text = table.rows.empty() ? "" : table.Text(screen);
  for (const v1::AgentStatus& agent : status.agents()) {
    if (agent.segments_refused() == 0) continue;
    // The reason is not cut: it says what to do.
    absl::StrAppend(&text, agent.segments_refused(),
                    agent.segments_refused() == 1 ? " process" : " processes", " on ", agent.host(),
                    " cannot be watched:\n  ", agent.refusal(), "\n");
  }
  if (by_node) {
    absl::StrAppend(&text,
                    Fit(absl::StrCat(in_order, in_order == 1 ? " agent reports" : " agents report",
                                     " in time and lost nothing"),
                        screen.columns),
                    "\n");
  }
  return text;
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

std::string StatusText(const v1::GetStatusReply& known, StatusBy by, const Screen& screen) {
  v1::GetStatusReply status = known;
  const int earlier = TakeOutEarlier(&status);
  const bool by_node =
      by == StatusBy::kNode || (by == StatusBy::kFitting && status.ranks_size() > kMostRanks);
  const int64_t incarnation = CommonIncarnation(status);
  const std::string head =
      absl::StrCat("job ", status.job(), ": ", status.ranks_size(), " ranks, ",
                   incarnation > 0 ? absl::StrCat("incarnation ", incarnation, ", ") : "", "master epoch ",
                   service::CommunicatorText(status.master_epoch()));
  const std::string ranks = status.ranks().empty() ? "no rank has been seen yet\n"
                            : by_node              ? NodeTable(status, screen)
                                                   : RankTable(status, screen);
  const std::string policy =
      status.policy_fault().empty()
          ? ""
          : absl::StrCat("policy ", status.policy_version(), " is in force, not what its file says now:\n  ",
                         status.policy_fault(), "\n");
  std::string limits;
  for (const v1::ReachedLimit& limit : status.limits()) {
    absl::StrAppend(&limits, "limit reached (", limit.name(), "):\n  ", limit.sentence(), "\n");
  }
  const std::string restarted =
      earlier == 0 ? ""
                   : Fit(absl::StrCat("started again: ", earlier,
                                      earlier == 1 ? " process of an earlier incarnation is gone"
                                                   : " processes of earlier incarnations are gone"),
                         screen.columns) +
                         "\n";
  return absl::StrCat(Fit(head, screen.columns), "\n", policy, limits, restarted, "\n", ranks, "\n",
                      AgentTable(status, by_node, screen));
}

}  // namespace c4::cli
