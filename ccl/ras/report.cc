#include "ccl/ras/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "ccl/include/nccl.h"

namespace c4::ras {
namespace {

constexpr const char* kKindNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                      "AllReduce", "AlltoAll", "Gather",    "Scatter"};
static_assert(std::size(kKindNames) == kKinds);

constexpr uint32_t kMostListed = 10;  // ranks that the text names, unless it is to be verbose
constexpr uint32_t kMostMissing = 1u << 16;

__attribute__((format(printf, 2, 3))) void Append(std::string* text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length > 0) text->append(line, std::min(sizeof line - 1, static_cast<size_t>(length)));
}

uint64_t CallsOf(const State& state) {
  uint64_t calls = 0;
  for (const uint64_t of_kind : state.calls) calls += of_kind;
  return calls;
}

bool IsError(int32_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

const char* TrueOrFalse(bool value) {
  return value ? "true" : "false";
}

const char* Plural(size_t count, const char* one, const char* several) {
  return count == 1 ? one : several;
}

const char* StatusOf(const CommunicatorReport& communicator) {
  const auto any = [&](uint32_t flags) {
    return std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                       [flags](const Present& rank) { return (rank.state.flags & flags) != 0; });
  };
  if (any(kAborted)) return "ABORT";
  if (any(kFinalized | kDestroyed)) return "FINALIZE";
  const bool starts =
      std::any_of(communicator.ranks.begin(), communicator.ranks.end(),
                  [](const Present& rank) { return rank.state.init_state == ncclInProgress; });
  return starts ? "INIT" : "RUNNING";
}

bool HasErrors(const CommunicatorReport& communicator) {
  return std::any_of(communicator.ranks.begin(), communicator.ranks.end(), [](const Present& rank) {
    return IsError(rank.state.init_state) || IsError(rank.state.async_error);
  });
}

bool Differs(const CommunicatorReport& communicator) {
  return std::any_of(communicator.ranks.begin(), communicator.ranks.end(), [&](const Present& rank) {
    return memcmp(rank.state.calls, communicator.ranks.front().state.calls, sizeof rank.state.calls) != 0;
  });
}

const char* ErrorsOf(const CommunicatorReport& communicator) {
  if (!communicator.missing.empty()) return "INCOMPLETE";
  if (HasErrors(communicator)) return "ERROR";
  return Differs(communicator) ? "MISMATCH" : "OK";
}

std::string Range(size_t least, size_t most) {
  std::string text = std::to_string(least);
  if (most != least) text += "-" + std::to_string(most);
  return text;
}

// Least and most of the counts.
template <typename Map>
std::string RangeOf(const Map& counts) {
  size_t least = SIZE_MAX;
  size_t most = 0;
  for (const auto& [key, count] : counts) {
    least = std::min<size_t>(least, count);
    most = std::max<size_t>(most, count);
  }
  return counts.empty() ? "0" : Range(least, most);
}

// "3, 5, 9 and 12 more".
std::string RankList(const std::vector<uint32_t>& ranks, bool verbose) {
  std::string text;
  size_t listed = 0;
  for (const uint32_t rank : ranks) {
    if (!verbose && listed == kMostListed) break;
    text += (listed++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  if (listed < ranks.size()) text += " and " + std::to_string(ranks.size() - listed) + " more";
  return text;
}

void AppendSummary(const Report& report, std::string* text) {
  std::map<std::string, size_t> on_node;
  std::map<size_t, size_t> ranks_of;
  for (const ProcessTold& process : report.processes) ++on_node[process.host];
  size_t widest = 0;
  for (const CommunicatorReport& communicator : report.communicators) {
    if (communicator.rank_count < widest) break;
    widest = communicator.rank_count;
    std::map<size_t, size_t> here;
    for (const Present& rank : communicator.ranks) ++here[rank.process];
    for (const auto& [process, count] : here) ranks_of[process] = std::max(ranks_of[process], count);
  }
  for (size_t i = 0; i < report.processes.size(); ++i) ranks_of.try_emplace(i, 1);
  size_t all = 0;
  for (const auto& [process, count] : ranks_of) all += count;
  Append(text, "\nJob summary\n===========\n\n");
  Append(text, "  Nodes  Processes         GPUs  Processes     GPUs\n");
  Append(text, "(total)   per node  per process    (total)  (total)\n");
  Append(text, "%7zu %10s %12s %10zu %8zu\n", on_node.size(), RangeOf(on_node).c_str(),
         RangeOf(ranks_of).c_str(), report.processes.size(), all);
}

void AppendCommunicators(const Report& report, std::string* text) {
  struct Group {
    size_t communicators = 0;
    size_t ranks = 0;
  };
  // By size, nodes, ranks a node, status, errors.
  std::map<std::tuple<uint32_t, size_t, std::string, std::string, std::string>, Group> groups;
  for (const CommunicatorReport& communicator : report.communicators) {
    std::map<std::string, size_t> on_node;
    for (const Present& rank : communicator.ranks) ++on_node[report.processes[rank.process].host];
    for (const Missing& missing : communicator.missing) {
      if (!missing.host.empty()) on_node.try_emplace(missing.host);
    }
    Group& group = groups[{communicator.rank_count, on_node.size(), RangeOf(on_node), StatusOf(communicator),
                           ErrorsOf(communicator)}];
    ++group.communicators;
    group.ranks += communicator.rank_count;
  }
  Append(text, "\nCommunicators... (%.2fs)\n=============\n\n", report.seconds);
  Append(text, "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n");
  Append(text, "    #  in group  per comm  per node  per comm  in group\n");
  size_t number = 0;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group, ++number) {
    const auto& [size, nodes, a_node, status, errors] = group->first;
    Append(text, "%5zu %9zu %9zu %9s %9u %9zu %9s  %s\n", number, group->second.communicators, nodes,
           a_node.c_str(), size, group->second.ranks, status.c_str(), errors.c_str());
  }
}

void AppendProcesses(const Report& report, bool dead, const char* heading, const char* what,
                     std::string* text) {
  std::vector<const ProcessTold*> silent;
  for (const ProcessTold& process : report.processes) {
    if (!process.answered && process.dead == dead) silent.push_back(&process);
  }
  if (silent.empty()) return;
  Append(text, "\n%s\n  %zu job %s %s\n", heading, silent.size(),
         Plural(silent.size(), "process", "processes"), what);
  for (const ProcessTold* process : silent) {
    Append(text, "  Process %u on node %s\n", process->pid, process->host.c_str());
  }
}

void AppendErrors(const Report& report, bool verbose, std::string* text) {
  Append(text, "\nErrors\n======\n");
  AppendProcesses(report, true, "DEAD", "gone: nobody is at any of their ports", text);
  AppendProcesses(report, false, "INCOMPLETE", "did not answer", text);
  for (const CommunicatorReport& communicator : report.communicators) {
    if (!communicator.missing.empty()) {
      std::vector<uint32_t> ranks;
      for (const Missing& missing : communicator.missing) ranks.push_back(missing.rank);
      Append(text, "\n%016" PRIx64 " INCOMPLETE\n  Missing communicator data from %zu %s\n", communicator.id,
             ranks.size(), Plural(ranks.size(), "rank", "ranks"));
      *text += std::string("  The missing ") + Plural(ranks.size(), "rank: ", "ranks: ") +
               RankList(ranks, verbose) + "\n";
    }
    if (!HasErrors(communicator)) continue;
    Append(text, "\n%016" PRIx64 " ERROR\n", communicator.id);
    for (const Present& rank : communicator.ranks) {
      const State& state = rank.state;
      if (!IsError(state.init_state) && !IsError(state.async_error)) continue;
      const ProcessTold& process = report.processes[rank.process];
      Append(text, "  Rank %u (process %u on node %s) has NCCL's result %d\n", state.rank, process.pid,
             process.host.c_str(), IsError(state.async_error) ? state.async_error : state.init_state);
    }
  }
}

// Ranks by how many collectives they have launched.
void AppendWarnings(const Report& report, bool verbose, std::string* text) {
  Append(text, "\nWarnings\n========\n");
  for (const CommunicatorReport& communicator : report.communicators) {
    if (communicator.ranks.empty() || !Differs(communicator)) continue;
    Append(text,
           "\n%016" PRIx64 " MISMATCH\n  Communicator ranks have different collective operation counts\n",
           communicator.id);
    std::map<uint64_t, std::vector<uint32_t>> by_calls;
    for (const Present& rank : communicator.ranks) by_calls[CallsOf(rank.state)].push_back(rank.state.rank);
    for (auto entry = by_calls.rbegin(); entry != by_calls.rend(); ++entry) {
      const auto& [calls, ranks] = *entry;
      Append(text, "  %zu %s launched up to operation %" PRIu64 "\n", ranks.size(),
             Plural(ranks.size(), "rank has", "ranks have"), calls);
      const bool few = 4 * ranks.size() <= communicator.ranks.size() || ranks.size() == 1;
      if (verbose || few) *text += "  Ranks " + RankList(ranks, verbose) + "\n";
    }
  }
  if (report.timeouts > 0) {
    Append(text, "\nTIMEOUT\n  %u %s did not answer in time\n", report.timeouts,
           Plural(report.timeouts, "process", "processes"));
  }
}

void AppendRank(const Present& rank, const ProcessTold& process, std::string* text) {
  const State& state = rank.state;
  Append(text, "        {\n          \"rank\": %u,\n          \"host\": \"%s\",\n          \"pid\": %u,\n",
         state.rank, process.host.c_str(), process.pid);
  Append(text, "          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n          \"status\": {\n");
  Append(text, "            \"init_state\": %d,\n            \"async_error\": %d,\n", state.init_state,
         state.async_error);
  Append(text,
         "            \"finalize_called\": %s,\n            \"destroy_flag\": %s,\n            "
         "\"abort_flag\": %s\n"
         "          },\n          \"collective_counts\": {\n",
         TrueOrFalse((state.flags & kFinalized) != 0), TrueOrFalse((state.flags & kDestroyed) != 0),
         TrueOrFalse((state.flags & kAborted) != 0));
  for (size_t kind = 0; kind < kKinds; ++kind) {
    Append(text, "            \"%s\": %" PRIu64 "%s\n", kKindNames[kind], state.calls[kind],
           kind + 1 < kKinds ? "," : "");
  }
  *text += "          }\n        }";
}

void AppendMissing(const Missing& missing, std::string* text) {
  Append(text, "        {\n          \"rank\": %u,\n          \"host\": \"%s\",\n          \"pid\": %u,\n",
         missing.rank, missing.host.c_str(), missing.pid);
  Append(text,
         "          \"cuda_dev\": -1,\n          \"nvml_dev\": -1,\n          \"status\": {\n"
         "            \"unresponsive\": %s,\n            \"considered_dead\": %s\n          }\n        }",
         TrueOrFalse(!missing.answered), TrueOrFalse(missing.dead));
}

}  // namespace

Report Compose(std::vector<ProcessTold> processes, const std::vector<Seat>& seats, double seconds) {
  struct Gathered {
    uint32_t rank_count = 0;
    std::map<uint32_t, Present> present;
    std::map<uint32_t, size_t> seats;  // process, by rank
  };
  std::map<uint64_t, Gathered> communicators;
  Report report;
  report.seconds = seconds;
  for (const Seat& seat : seats) {
    Gathered& gathered = communicators[seat.communicator_id];
    if (gathered.rank_count == 0) gathered.rank_count = seat.rank_count;
    gathered.seats[seat.rank] = seat.process;
  }
  for (size_t i = 0; i < processes.size(); ++i) {
    report.timeouts += processes[i].answered || processes[i].dead ? 0 : 1;
    for (const State& state : processes[i].states) {
      Gathered& gathered = communicators[state.communicator_id];
      if (gathered.rank_count == 0) gathered.rank_count = state.rank_count;
      if (state.rank < gathered.rank_count) gathered.present.try_emplace(state.rank, Present{state, i});
    }
  }
  for (const auto& [id, gathered] : communicators) {
    CommunicatorReport& communicator = report.communicators.emplace_back();
    communicator.id = id;
    communicator.rank_count = gathered.rank_count;
    for (const auto& [rank, present] : gathered.present) communicator.ranks.push_back(present);
    for (uint32_t rank = 0; rank < gathered.rank_count && communicator.missing.size() < kMostMissing;
         ++rank) {
      if (gathered.present.contains(rank)) continue;
      Missing& missing = communicator.missing.emplace_back();
      missing.rank = rank;
      const auto seat = gathered.seats.find(rank);
      if (seat == gathered.seats.end()) continue;
      const ProcessTold& process = processes[seat->second];
      missing.host = process.host;
      missing.pid = process.pid;
      missing.answered = process.answered;
      missing.dead = process.dead;
    }
  }
  std::stable_sort(
      report.communicators.begin(), report.communicators.end(),
      [](const CommunicatorReport& a, const CommunicatorReport& b) { return a.rank_count > b.rank_count; });
  report.processes = std::move(processes);
  return report;
}

std::string ToJson(const Report& report, time_t now) {
  char stamp[32] = "";
  tm local{};
  if (localtime_r(&now, &local) != nullptr) strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
  std::string text;
  Append(&text, "{\n  \"nccl_version\": \"%d.%d.%d\",\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  Append(&text, "  \"cuda_runtime_version\": 0,\n  \"cuda_driver_version\": 0,\n  \"timestamp\": \"%s\",\n",
         stamp);
  Append(&text, "  \"communicators_count\": %zu,\n  \"communicators\": [\n", report.communicators.size());
  for (size_t i = 0; i < report.communicators.size(); ++i) {
    const CommunicatorReport& communicator = report.communicators[i];
    Append(&text, "    {\n      \"hash\": \"0x%016" PRIx64 "\",\n      \"secondary_hash\": \"0x0:0x0\",\n",
           communicator.id);
    Append(&text,
           "      \"size\": %u,\n      \"ranks_count\": %zu,\n      \"missing_ranks_count\": %zu,\n      "
           "\"ranks\": [\n",
           communicator.rank_count, communicator.ranks.size(), communicator.missing.size());
    for (size_t rank = 0; rank < communicator.ranks.size(); ++rank) {
      AppendRank(communicator.ranks[rank], report.processes[communicator.ranks[rank].process], &text);
      text += rank + 1 < communicator.ranks.size() ? ",\n" : "\n";
    }
    text += "      ],\n      \"missing_ranks\": [\n";
    for (size_t rank = 0; rank < communicator.missing.size(); ++rank) {
      AppendMissing(communicator.missing[rank], &text);
      text += rank + 1 < communicator.missing.size() ? ",\n" : "\n";
    }
    text += i + 1 < report.communicators.size() ? "      ]\n    },\n" : "      ]\n    }\n";
  }
  Append(&text,
         "  ],\n  \"ras\": {\n    \"collection_time_sec\": %.3f,\n    \"timeouts_count\": %u\n  }\n}\n",
         report.seconds, report.timeouts);
  return text;
}

std::string ToText(const Report& report, bool verbose) {
  std::string text;
  Append(&text, "NCCL version %d.%d.%d, host engine of C4\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  AppendSummary(report, &text);
  AppendCommunicators(report, &text);
  AppendErrors(report, verbose, &text);
  AppendWarnings(report, verbose, &text);
  text += "\n";
  return text;
}

}  // namespace c4::ras
