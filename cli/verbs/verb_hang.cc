// c4 hang: which ranks a hung job waits for, from its Flight Recorder dumps.
#include <cstdio>
#include <set>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "analysis/dump_waits.h"
#include "cli/exit_codes.h"
#include "cli/options.h"
#include "cli/verb.h"
#include "service/printable.h"
#include "traces/dump_files.h"

namespace c4::cli {
namespace {

using analysis::StalledRank;
using analysis::StalledRanks;

constexpr char kSummary[] = "tell which ranks a hung job waits for, from Flight Recorder dumps";

std::string Place(const std::string& description, const std::string& group, int64_t operation) {
  return absl::StrCat(
      description.empty() ? "a group" : description, " (group ", group, "), ",
      operation < 0 ? std::string("a send or receive") : absl::StrCat("operation ", operation));
}

std::string CulpritText(const StalledRank& rank) {
  return absl::StrCat("rank ", rank.rank, ": ", rank.waiters.size(), " ranks wait for it, in ",
                      Place(rank.description, rank.group, rank.operation), "; ", analysis::ProgressText(rank),
                      "\n");
}

void AddWithoutDump(const StalledRanks& found, std::string* text) {
  if (found.without_dump.empty()) return;
  if (found.without_dump_certain) {
    const StalledRank& rank = found.without_dump.front();
    absl::StrAppend(text, "rank ", rank.rank, ": it left no dump, and ", rank.waiters.size(),
                    " ranks wait for it, in ", Place(rank.description, rank.group, rank.operation),
                    ": it is dead, or its dump is lost\n");
    return;
  }
  std::vector<int> ranks;
  for (const StalledRank& rank : found.without_dump) ranks.push_back(rank.rank);
  absl::StrAppend(text, "undecided: the waits end at ranks without a dump, ", absl::StrJoin(ranks, ", "),
                  ": each is dead, or waits for another one without a dump, or its dump is lost\n");
}

void AddMismatch(const analysis::MismatchedOperation& mismatch, std::string* text) {
  if (mismatch.culprits.empty()) {
    absl::StrAppend(text, "undecided: ranks disagree");
  } else {
    absl::StrAppend(text, mismatch.culprits.size() == 1 ? "rank " : "ranks ",
                    absl::StrJoin(mismatch.culprits, ", "),
                    mismatch.culprits.size() == 1 ? " disagrees" : " disagree", " with the others");
  }
  absl::StrAppend(text, " in ", Place(mismatch.description, mismatch.group, mismatch.operation), "\n");
  for (const auto& side : mismatch.sides)
    absl::StrAppend(text, "  ranks ", absl::StrJoin(side.ranks, ", "), ": ", side.shape, "\n");
}

std::string HangText(const StalledRanks& found, size_t dumps) {
  std::string text;
  for (const auto& mismatch : found.mismatched) AddMismatch(mismatch, &text);
  for (const StalledRank& rank : found.stalled) text += CulpritText(rank);
  AddWithoutDump(found, &text);
  for (const std::vector<int>& cycle : found.cycles) {
    absl::StrAppend(&text, "ranks ", absl::StrJoin(cycle, ", "),
                    " wait for each other, in different groups: a deadlock\n");
  }
  for (const analysis::StuckOperation& stuck : found.stuck) {
    absl::StrAppend(&text, "every member of ", Place(stuck.description, stuck.group, stuck.operation),
                    " has entered it, and ranks ", absl::StrJoin(stuck.unfinished, ", "),
                    " have not finished it");
    if (!stuck.finished.empty())
      absl::StrAppend(&text, " (ranks ", absl::StrJoin(stuck.finished, ", "), " have)");
    text += "; look at the network and the devices of these ranks\n";
  }
  if (text.empty()) text = absl::StrCat("no rank waits for another in these ", dumps, " dumps\n");
  if (!found.missing.empty()) {
    absl::StrAppend(&text, found.missing.size(), " of ", found.missing.size() + dumps,
                    " dumps missing: what those ranks did is not known, and more may be to blame\n");
  }
  return text;
}

nlohmann::ordered_json RankJson(const StalledRank& rank) {
  return {{"rank", rank.rank},
          {"waiters", rank.waiters},
          {"group", rank.group},
          {"description", rank.description},
          {"operation", rank.operation},
          {"last_entered", rank.last_entered},
          {"last_completed", rank.last_completed}};
}

std::string HangJson(const StalledRanks& found, const traces::DumpFiles& files) {
  using nlohmann::ordered_json;
  std::set<int> ranks;
  ordered_json json = {{"ranks", ordered_json::array()},
                       {"stalled", ordered_json::array()},
                       {"without_dump", ordered_json::array()},
                       {"without_dump_certain", found.without_dump_certain},
                       {"mismatched", ordered_json::array()},
                       {"deadlocks", found.cycles},
                       {"stuck_groups", ordered_json::array()},
                       {"stuck", ordered_json::array()},
                       {"dumps", files.dumps.size()},
                       {"missing", found.missing},
                       {"problems", files.problems}};
  for (const StalledRank& rank : found.stalled) {
    ranks.insert(rank.rank);
    json["stalled"].push_back(RankJson(rank));
  }
  for (const StalledRank& rank : found.without_dump) {
    if (found.without_dump_certain) ranks.insert(rank.rank);
    json["without_dump"].push_back(RankJson(rank));
  }
  for (const auto& mismatch : found.mismatched) {
    ranks.insert(mismatch.culprits.begin(), mismatch.culprits.end());
    ordered_json sides = ordered_json::array();
    for (const auto& side : mismatch.sides) sides.push_back({{"shape", side.shape}, {"ranks", side.ranks}});
    json["mismatched"].push_back({{"group", mismatch.group},
                                  {"description", mismatch.description},
                                  {"operation", mismatch.operation},
                                  {"sides", std::move(sides)},
                                  {"culprits", mismatch.culprits}});
  }
  for (const analysis::StuckOperation& stuck : found.stuck) {
    json["stuck_groups"].push_back(stuck.group);
    json["stuck"].push_back({{"group", stuck.group},
                             {"description", stuck.description},
                             {"operation", stuck.operation},
                             {"unfinished", stuck.unfinished},
                             {"finished", stuck.finished}});
  }
  json["ranks"] = ranks;
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

int RunHang(const Arguments& arguments) {
  std::vector<std::string> words;
  bool json = false;
  Options options("hang", kSummary);
  options.Words("DUMPS", &words,
                "the ranks' dumps as PyTorch writes them, or as JSON, also packed; directories, globs and "
                "tar archives of them");
  options.Flag("--json", &json, "one JSON document: {\"ranks\":[...],\"stalled\":[...],...}");
  if (const std::optional<int> exit_code = options.Parse(arguments)) return *exit_code;
  const traces::DumpFiles files = traces::ReadDumpFiles(words);
  for (const std::string& problem : files.problems) {
    fprintf(stderr, "c4 hang: %s\n", service::Printable(problem).c_str());
  }
  if (files.dumps.empty()) return files.no_file ? kExitNoInput : kExitBadData;
  if (files.two_of_one_rank) return kExitBadData;
  const StalledRanks found = analysis::FindStalledRanks(files.dumps);
  const std::string page = json ? HangJson(found, files) + "\n" : HangText(found, files.dumps.size());
  fputs(service::PrintablePage(page).c_str(), stdout);
  return found.empty() ? kExitOk : kExitHung;
}

}  // namespace

constinit const Verb kHangVerb = {"hang", kSummary, RunHang};

}  // namespace c4::cli
