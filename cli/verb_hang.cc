// c4 hang: which ranks a hung job waits for, from its Flight Recorder dumps.
#include <cstdio>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/dump_waits.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "traces/byte_source.h"
#include "traces/flight_recorder.h"
#include "traces/input_files.h"

namespace c4::cli {
namespace {

using analysis::StalledRank;
using analysis::StalledRanks;

constexpr char kSummary[] = "tell which ranks a hung job waits for, from Flight Recorder dumps";
constexpr size_t kMaxDumpBytes = size_t{1} << 30;

absl::StatusOr<analysis::RankDump> ReadDump(const std::string& path) {
  absl::StatusOr<std::unique_ptr<traces::ByteSource>> source = traces::OpenBytes(path);
  if (!source.ok()) return source.status();
  const absl::StatusOr<std::string> text = traces::ReadAll(source->get(), kMaxDumpBytes);
  if (!text.ok()) return text.status();
  return traces::ParseFlightDump(*text, std::filesystem::path(path).filename().string());
}

std::string HangText(const StalledRanks& found, size_t dumps) {
  std::string text;
  for (const StalledRank& rank : found.stalled) {
    absl::StrAppend(&text, "rank ", rank.rank, rank.dumped ? "" : " (no dump of it)", ": ",
                    rank.waiters.size(), " ranks wait for it, in ", rank.description, " (group ", rank.group,
                    "), operation ", rank.operation);
    if (rank.dumped) absl::StrAppend(&text, "; it has entered ", rank.last_entered);
    text += "\n";
  }
  for (const std::vector<int>& cycle : found.cycles) {
    absl::StrAppend(&text, "ranks ", absl::StrJoin(cycle, ", "),
                    " wait for each other, in different groups: a deadlock\n");
  }
  if (!text.empty()) return text;
  if (!found.stuck_groups.empty()) {
    return absl::StrCat(
        "no rank is absent: every member of group ", absl::StrJoin(found.stuck_groups, ", "),
        " is in the same operation, which does not end; look at the network and the devices\n");
  }
  return absl::StrCat("no rank waits for another in these ", dumps, " dumps\n");
}

std::string HangJson(const StalledRanks& found) {
  nlohmann::ordered_json json = {{"ranks", nlohmann::ordered_json::array()}};
  nlohmann::ordered_json stalled = nlohmann::ordered_json::array();
  for (const StalledRank& rank : found.stalled) {
    json["ranks"].push_back(rank.rank);
    stalled.push_back({{"rank", rank.rank},
                       {"dumped", rank.dumped},
                       {"waiters", rank.waiters},
                       {"group", rank.group},
                       {"description", rank.description},
                       {"operation", rank.operation},
                       {"last_entered", rank.last_entered}});
  }
  json["stalled"] = std::move(stalled);
  json["deadlocks"] = found.cycles;
  json["stuck_groups"] = found.stuck_groups;
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

int RunHang(const Arguments& arguments) {
  std::vector<std::string> words;
  bool json = false;
  Options options("hang", kSummary);
  options.Words("DUMPS", &words,
                "the ranks' dumps as JSON, rank_N.json, also packed; or a directory of them");
  options.Flag("--json", &json, "one JSON document: {\"ranks\":[...],\"stalled\":[...],...}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const absl::StatusOr<std::vector<std::string>> files = traces::JsonFiles(words, "dump");
  if (!files.ok()) {
    fprintf(stderr, "c4 hang: %s\n", std::string(files.status().message()).c_str());
    return kExitNoInput;
  }
  std::vector<analysis::RankDump> dumps;
  for (const std::string& file : *files) {
    absl::StatusOr<analysis::RankDump> dump = ReadDump(file);
    if (!dump.ok()) {
      fprintf(stderr, "c4 hang: %s: %s\n", file.c_str(), std::string(dump.status().message()).c_str());
      return absl::IsNotFound(dump.status()) || absl::IsPermissionDenied(dump.status()) ? kExitNoInput
                                                                                        : kExitBadData;
    }
    const auto same = std::find_if(dumps.begin(), dumps.end(), [&dump](const analysis::RankDump& other) {
      return other.rank == dump->rank;
    });
    if (same != dumps.end()) {
      fprintf(stderr, "c4 hang: %s: there is a second dump of rank %d: give those of one time only\n",
              file.c_str(), dump->rank);
      return kExitBadData;
    }
    dumps.push_back(*std::move(dump));
  }
  const StalledRanks found = analysis::FindStalledRanks(dumps);
  fputs((json ? HangJson(found) + "\n" : HangText(found, dumps.size())).c_str(), stdout);
  return found.stalled.empty() && found.cycles.empty() && found.stuck_groups.empty() ? kExitOk : kExitHung;
}

}  // namespace

constinit const Verb kHangVerb = {"hang", kSummary, RunHang};

}  // namespace c4::cli
