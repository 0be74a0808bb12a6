// c4 stacks: where the ranks of this machine stand.
#include <cstdio>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/thread_stacks.h"
#include "cli/clients/master_client.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "nlohmann/json.hpp"

namespace c4::cli {
namespace {

constexpr char kSummary[] = "show where the ranks of this machine stand: threads, and Python where offered";
constexpr absl::Duration kCallLimit = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr absl::Duration kAnswer = absl::Seconds(2);  // of a process that is asked for its Python stacks

struct RankPlace {
  int32_t rank = -1;
  uint32_t pid = 0;
  std::string host;
  std::vector<ThreadPlace> threads;
  PythonPlace python;
};

const char* StateText(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "blocked in the kernel";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'Z':
      return "dead";
    default:
      return "idle";
  }
}

void Print(const RankPlace& place) {
  printf("rank %d, process %u on %s\n", place.rank, place.pid, place.host.c_str());
  for (const ThreadPlace& thread : place.threads) {
    printf("  thread %u %s: %s", thread.tid, thread.name.c_str(), StateText(thread.state));
    if (!thread.wait_channel.empty()) printf(" in %s", thread.wait_channel.c_str());
    printf("\n");
    if (!thread.kernel_stack.empty()) {
      printf("    kernel: %s\n", absl::StrJoin(thread.kernel_stack, " < ").c_str());
    }
  }
  if (place.python.lines.empty()) {
    printf("  no Python stacks: %s\n", place.python.why.c_str());
    return;
  }
  for (const std::string& line : place.python.lines) printf("  %s\n", line.c_str());
}

nlohmann::json ToJson(const RankPlace& place) {
  nlohmann::json threads = nlohmann::json::array();
  for (const ThreadPlace& thread : place.threads) {
    threads.push_back({{"tid", thread.tid},
                       {"name", thread.name},
                       {"state", StateText(thread.state)},
                       {"wait_channel", thread.wait_channel},
                       {"kernel_stack", thread.kernel_stack}});
  }
  return {{"rank", place.rank},           {"pid", place.pid},
          {"host", place.host},           {"threads", threads},
          {"python", place.python.lines}, {"why_no_python", place.python.why}};
}

int RunStacks(const Arguments& arguments) {
  std::vector<std::string> words;
  bool json = false;
  MasterOptions master;
  Options options("stacks", kSummary);
  options.Flag("--json", &json, "one JSON document: {\"ranks\", \"elsewhere\"}");
  master.Declare(&options);
  options.OptionalWords("RANK", &words, "of the job; none: all that run on this machine");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  std::set<int32_t> wanted;
  for (const std::string& word : words) {
    int32_t rank = -1;
    if (!absl::SimpleAtoi(word, &rank) || rank < 0) {
      return UsageError("stacks", absl::StrCat("'", word, "' is no rank: give numbers from 0 on"));
    }
    wanted.insert(rank);
  }
  const bool all = wanted.empty();
  v1::GetStatusReply status;
  const absl::Status asked = AskMaster(master, kPatience, [&status](const MasterClient& client) {
    const absl::StatusOr<v1::GetStatusReply> reply = client.GetStatus(kCallLimit);
    if (reply.ok()) status = *reply;
    return reply.status();
  });
  if (!asked.ok()) {
    fprintf(stderr, "c4 stacks: %s\n", std::string(asked.message()).c_str());
    return kExitUnreachable;
  }
  std::vector<RankPlace> places;
  std::vector<const v1::RankStatus*> elsewhere;
  for (const v1::RankStatus& rank : status.ranks()) {
    if (!all && wanted.erase(rank.rank()) == 0) continue;
    const v1::ProcessId& process = rank.process();
    if (!IsHere(process.boot_id(), process.pid(), process.start_time_ticks())) {
      elsewhere.push_back(&rank);
      continue;
    }
    RankPlace& place = places.emplace_back();
    place.rank = rank.rank();
    place.pid = process.pid();
    place.host = process.host();
    place.threads = ThreadsOf(place.pid);
    place.python = PythonStacksOf(place.pid, kAnswer);
    if (!json) Print(place);
  }
  if (json) {
    nlohmann::json ranks = nlohmann::json::array();
    for (const RankPlace& place : places) ranks.push_back(ToJson(place));
    nlohmann::json others = nlohmann::json::array();
    for (const v1::RankStatus* rank : elsewhere) {
      others.push_back({{"rank", rank->rank()}, {"host", rank->process().host()}});
    }
    printf("%s\n", nlohmann::json({{"ranks", ranks}, {"elsewhere", others}})
                       .dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
                       .c_str());
  } else {
    for (const v1::RankStatus* rank : elsewhere) {
      printf("rank %d is not a process of this machine, or has ended: run `c4 stacks` on %s\n", rank->rank(),
             rank->process().host().c_str());
    }
  }
  if (wanted.empty()) return kExitOk;
  fprintf(stderr, "c4 stacks: the job has no rank %s\n", absl::StrJoin(wanted, ", ").c_str());
  return kExitFailed;
}

}  // namespace

constinit const Verb kStacksVerb = {"stacks", kSummary, RunStacks};

}  // namespace c4::cli
