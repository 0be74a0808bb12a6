#include "c4d_master/sources/dump_findings.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "c4d_master/detectors/queue_pair_ends.h"
#include "service/text.h"
#include "service/verdict_json.h"

namespace c4::c4d {
namespace {

using analysis::StalledRank;
using service::Concat;

constexpr char kEvidence[] = "flight recorder";
constexpr char kPastLimit[] = "past-limit";

// Dumps come from outside: texts of any bytes and length.
std::string Short(const std::string& text) {
  constexpr size_t kMost = 200;
  return service::ToUtf8(text.size() <= kMost ? text : text.substr(0, kMost) + "...");
}

std::string Place(const std::string& description, const std::string& group, int64_t operation) {
  return Concat(operation < 0 ? std::string("a send or receive") : Concat("operation ", operation), " of ",
                description.empty() ? "" : Concat(Short(description), ", "), "group ", Short(group));
}

std::vector<uint32_t> Unsigned(const std::vector<int>& ranks) {
  return {ranks.begin(), ranks.end()};
}

std::string List(const std::vector<int>& ranks) {
  return service::RankListText(Unsigned(ranks));
}

// What the dumps say of when a wait began.
class Times {
 public:
  Times(const AnalysedDumps& dumps, Now now) : now_(now), by_rank_(dumps.times) {}

  // Fills in since when these have waited, and whether that is certain, a suspicion, or not long enough
  // (false).
  bool Judge(const std::vector<int>& waiters, const HangThresholds& thresholds, Finding* finding) const {
    int64_t since_unix_ns = -1;  // the newest call of one of them
    int64_t written_unix_ns = INT64_MAX;
    bool known = true;
    for (const int rank : waiters) {
      const auto found = by_rank_.find(rank);
      if (found == by_rank_.end()) continue;
      known = known && found->second.last_call_unix_ns >= 0;
      since_unix_ns = std::max(since_unix_ns, found->second.last_call_unix_ns);
      written_unix_ns = std::min(written_unix_ns, found->second.written_unix_ns);
    }
    if (written_unix_ns == INT64_MAX) return false;  // nobody who waits has a dump
    const int64_t waited_ns = known ? written_unix_ns - since_unix_ns : thresholds.no_progress_ns;
    if (waited_ns < thresholds.no_progress_ns) return false;
    const int64_t onset_unix_ns = known ? since_unix_ns : written_unix_ns;
    finding->since_at_ns = now_.monotonic_ns - std::max<int64_t>(now_.unix_ns - onset_unix_ns, 0);
    finding->waiting = Unsigned(waiters);
    finding->confidence = 0.9;
    if (known && waited_ns >= thresholds.limit_ns) finding->confirmed_by = kPastLimit;
    finding->evidence.push_back(
        {"waiting", known ? Concat(List(waiters), " had called nothing for ", service::SecondsText(waited_ns),
                                   " when they were dumped")
                          : std::string("the dumps do not say since when they wait (time_created_ns)")});
    return true;
  }

  int MostRank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }

 private:
  const Now now_;
  const std::map<int, AnalysedDumps::Times>& by_rank_;
};

std::vector<int> With(std::vector<int> ranks, const std::vector<int>& more) {
  ranks.insert(ranks.end(), more.begin(), more.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string StalledText(const StalledRank& rank) {
  return Concat("rank ", rank.rank, " is waited for in ", Place(rank.description, rank.group, rank.operation),
                "; ", analysis::ProgressText(rank));
}

Finding OfRank(int rank, int64_t operation, const std::string& text) {
  Finding finding;
  finding.rank = rank;
  finding.operation = operation < 0 ? 0 : static_cast<uint64_t>(operation);
  finding.evidence.push_back({kEvidence, text});
  return finding;
}

Finding OfSeveral(Syndrome syndrome, const std::vector<int>& ranks, int64_t operation,
                  const std::string& text) {
  Finding finding = OfRank(-1, operation, text);
  finding.syndrome = syndrome;
  finding.kind = CulpritKind::kAmbiguous;
  finding.candidates.assign(ranks.begin(), ranks.end());
  return finding;
}

void AddMismatch(const analysis::MismatchedOperation& mismatch, const Times& times,
                 const HangThresholds& thresholds, std::vector<Finding>* findings) {
  std::vector<int> all;
  std::string text = Concat("in ", Place(mismatch.description, mismatch.group, mismatch.operation));
  for (const auto& side : mismatch.sides) {
    all = With(std::move(all), side.ranks);
    text += Concat("; ", List(side.ranks), " called ", Short(side.shape));
  }
  Finding base = OfSeveral(Syndrome::kMismatch, all, mismatch.operation, text);
  if (!times.Judge(all, thresholds, &base)) return;
  base.suggested_action =
      "compare what these ranks pass to this call: function, types and sizes have to be the same on all "
      "ranks of the group; then restart the job";
  if (mismatch.culprits.empty()) {
    findings->push_back(std::move(base));
    return;
  }
  for (const int culprit : mismatch.culprits) {
    Finding finding = base;
    finding.kind = CulpritKind::kRank;
    finding.candidates.clear();
    finding.rank = culprit;
    std::erase(finding.waiting, static_cast<uint32_t>(culprit));
    findings->push_back(std::move(finding));
  }
}

void AddWithoutDump(const AnalysedDumps& dumps, const Times& times, const HangThresholds& thresholds,
                    std::vector<Finding>* findings) {
  const analysis::StalledRanks& found = dumps.found;
  if (found.without_dump.empty()) return;
  const StalledRank& first = found.without_dump.front();
  std::vector<int> ranks;
  std::vector<int> waiters;
  for (const StalledRank& rank : found.without_dump) {
    ranks.push_back(rank.rank);
    waiters = With(std::move(waiters), rank.waiters);
  }
  const std::string where = Place(first.description, first.group, first.operation);
  Finding finding =
      found.without_dump_certain
          ? OfRank(first.rank, first.operation,
                   Concat("rank ", first.rank, " is waited for in ", where,
                          "; it left no dump: it is dead, cannot run, or its dump is lost"))
          : OfSeveral(Syndrome::kNonCommunicationHang, ranks, first.operation,
                      Concat("the waits end at ", List(ranks), ", first in ", where,
                             "; none of them left a dump: each is dead, or waits for another of them"));
  if (!times.Judge(waiters, thresholds, &finding)) return;
  // A dump may yet come, and one that cannot be read may be this rank's.
  if (!dumps.complete || dumps.unreadable > 0) finding.confirmed_by.clear();
  finding.suggested_action =
      Concat("see whether ", List(ranks), ranks.size() == 1 ? " still runs" : " still run",
             ", and on which node; look there for what ended it (kernel log, GPU's "
             "Xid errors, memory), and restart the job without that node");
  findings->push_back(std::move(finding));
}

}  // namespace

AnalysedDumps Analyse(HeardDumps heard) {
  AnalysedDumps dumps;
  dumps.unreadable = heard.unreadable;
  dumps.complete = heard.complete;
  std::vector<analysis::RankDump> ranks;
  ranks.reserve(heard.dumps.size());
  for (HeardDump& dump : heard.dumps) {
    dumps.times[dump.dump.rank] = {dump.dump.last_call_unix_ns, dump.written_unix_ns};
    ranks.push_back(std::move(dump.dump));
  }
  dumps.found = analysis::FindStalledRanks(std::move(ranks));
  return dumps;
}

std::vector<Finding> FindInDumps(const AnalysedDumps& dumps, Now now, const HangThresholds& thresholds) {
  std::vector<Finding> findings;
  const analysis::StalledRanks& found = dumps.found;
  const Times times(dumps, now);
  for (const auto& mismatch : found.mismatched) AddMismatch(mismatch, times, thresholds, &findings);
  for (const StalledRank& rank : found.stalled) {
    Finding finding = OfRank(rank.rank, rank.operation, StalledText(rank));
    if (!times.Judge(rank.waiters, thresholds, &finding)) continue;
    finding.suggested_action = Concat("see what rank ", rank.rank,
                                      " does (`py-spy dump` of its process, kernel log, GPU's Xid "
                                      "errors); if it does not go on, restart the job without its node");
    findings.push_back(std::move(finding));
  }
  AddWithoutDump(dumps, times, thresholds, &findings);
  for (const std::vector<int>& cycle : found.cycles) {
    Finding finding = OfSeveral(Syndrome::kNonCommunicationHang, cycle, -1,
                                Concat(List(cycle), " wait for each other, in different groups"));
    if (!times.Judge(cycle, thresholds, &finding)) continue;
    finding.suggested_action =
        "give the calls of different groups the same order on all ranks; then restart the job";
    findings.push_back(std::move(finding));
  }
  // Of a group whose members no dump tells (back ends other than NCCL) one more may be missing.
  const bool all = dumps.complete && dumps.unreadable == 0 && found.missing.empty() &&
                   static_cast<int>(dumps.times.size()) == times.MostRank() + 1;
  for (const analysis::StuckOperation& stuck : found.stuck) {
    Finding finding =
        OfSeveral(Syndrome::kCommunicationHang, stuck.unfinished, stuck.operation,
                  Concat("every member has entered ", Place(stuck.description, stuck.group, stuck.operation),
                         ", and ", List(stuck.unfinished), " have not finished it",
                         stuck.finished.empty() ? "" : Concat("; ", List(stuck.finished), " have")));
    if (!times.Judge(stuck.unfinished, thresholds, &finding)) continue;
    if (!all) finding.confirmed_by.clear();
    finding.suggested_action =
        "look at the network and the devices of these ranks; dumps do not tell which of them is to blame";
    findings.push_back(std::move(finding));
  }
  return findings;
}

void AddFindingsOfDumps(const std::vector<Finding>& of_dumps, const JobSnapshot& snapshot,
                        std::vector<Finding>* findings) {
  int64_t last_step_at_ns = kNever;
  for (const Communicator& communicator : snapshot.communicators) {
    if (communicator.last_step_at_ns == kNever) continue;
    last_step_at_ns = last_step_at_ns == kNever ? communicator.last_step_at_ns
                                                : std::max(last_step_at_ns, communicator.last_step_at_ns);
  }
  for (Finding finding : of_dumps) {
    const bool gone_on = last_step_at_ns != kNever && finding.since_at_ns != kNever &&
                         last_step_at_ns > finding.since_at_ns + kDumpsCompleteNs;
    if (gone_on) continue;
    if (finding.kind == CulpritKind::kRank) {
      const auto known = std::find_if(findings->begin(), findings->end(), [&](const Finding& other) {
        return other.kind == CulpritKind::kRank && other.rank == finding.rank &&
               other.syndrome != Syndrome::kNonCommunicationSlow &&
               other.syndrome != Syndrome::kCommunicationSlow;
      });
      if (known != findings->end()) {
        known->evidence.insert(known->evidence.end(), finding.evidence.begin(), finding.evidence.end());
        if (known->confirmed_by.empty()) {
          known->confirmed_by = finding.confirmed_by;
          known->confidence = std::max(known->confidence, finding.confidence);
        }
        continue;
      }
      for (const ProcessRef& ref : snapshot.processes) {
        if (!ref.superseded && ref.process->rank == finding.rank) FillProcess(ref, &finding);
      }
    }
    findings->push_back(std::move(finding));
  }
}

}  // namespace c4::c4d
