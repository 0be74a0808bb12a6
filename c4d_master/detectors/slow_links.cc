#include "c4d_master/detectors/slow_links.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "service/text.h"

namespace c4::c4d {
namespace {

using analysis::FlowState;
using service::Concat;

// A link in one look.
struct Sight {
  bool unique = false;
  std::vector<const Cell*> cells;  // slow ones on it
  const BlamedLink* blamed = nullptr;
};

std::vector<const Cell*> CellsOf(const LookBlame& look, const BlamedLink& link) {
  std::vector<const Cell*> cells;
  for (const size_t witness : link.bad) {
    if (witness < look.bad.size()) cells.push_back(look.bad[witness]);
  }
  return cells;
}

std::map<std::string, Sight> SightsOf(const LookBlame& look) {
  std::map<std::string, Sight> sights;
  for (const BlamedLink& link : look.blame.blamed) sights[link.cable] = {true, CellsOf(look, link), &link};
  if (look.blame.sort != LinkBlame::Sort::kAmbiguous) return sights;
  for (const std::string& link : look.blame.candidates) {
    // What is shared was counted of one of them, and those that are slow take all of them.
    Sight& sight = sights[CableOf(link)];
    sight.cells = CellsOf(look, look.blame.shared);
    sight.blamed = &look.blame.shared;
  }
  return sights;
}

Finding Describe(const std::string& cable, const Sight& sight, const BlamedLink& seen, const char* what) {
  Finding finding = DescribeCells(sight.cells);
  finding.kind = CulpritKind::kLink;
  finding.cable = cable;
  finding.links = seen.links;
  finding.evidence.insert(finding.evidence.begin(), LinkEvidence(seen, what));
  finding.suggested_action = Concat(
      "look at the link ", cable,
      ": the rate of both switch ports, errors that they count, congestion by other jobs; take it out of "
      "the routing if it stays slow");
  return finding;
}

}  // namespace

LookBlame BlameLook(const Look& look, const Excused& excused, const std::vector<Witness>& fenced,
                    PathSource* paths, const SlowThresholds& thresholds) {
  LookBlame result;
  result.what = "are slow";
  std::vector<Witness> witnesses;
  std::set<Cell::Id> slow;
  for (const Cell* cell : look.slow) {
    if (excused(*cell)) continue;
    result.bad.push_back(cell);
    witnesses.push_back(WitnessOf(*cell->ends, cell->local, cell->remote, FlowState::kBad));
    slow.insert(cell->id());
  }
  if (result.bad.empty()) return result;
  // One or two chunks, or a few small ones, pass a slow link quickly, where its switch has room for them:
  // what speaks for a link has sent about as much as what speaks against it.
  double least_chunks = std::numeric_limits<double>::max();
  double least_bytes = std::numeric_limits<double>::max();
  for (const Cell* cell : result.bad) {
    least_chunks = std::min(least_chunks, cell->low.chunks / 2);
    least_bytes = std::min(least_bytes, cell->bytes() / 2);
  }
  least_chunks = std::max(2.0, least_chunks);
  for (const Cell& cell : look.cells) {
    if (slow.count(cell.id()) != 0) continue;
    const bool good = !cell.slow && cell.judged && !cell.unclear && cell.low.chunks >= least_chunks &&
                      cell.bytes() >= least_bytes && !excused(cell);
    witnesses.push_back(
        WitnessOf(*cell.ends, cell.local, cell.remote, good ? FlowState::kGood : FlowState::kUnknown));
  }
  result.blame = BlameLinks(witnesses, /*acks_count=*/false, paths, thresholds.link);
  if (result.blame.sort == LinkBlame::Sort::kLinks || fenced.empty()) return result;
  witnesses.insert(witnesses.end(), fenced.begin(), fenced.end());
  LinkBlame with_fenced = BlameLinks(witnesses, /*acks_count=*/false, paths, thresholds.link);
  if (with_fenced.sort == LinkBlame::Sort::kLinks || result.blame.sort == LinkBlame::Sort::kNone) {
    result.blame = std::move(with_fenced);
    result.what = "are slow or were given up by the transport";
  }
  return result;
}

std::vector<Finding> NameSlowLinks(const std::vector<LookBlame>& looks, const SlowThresholds& thresholds) {
  std::vector<std::map<std::string, Sight>> sights;
  sights.reserve(looks.size());
  for (const LookBlame& look : looks) sights.push_back(SightsOf(look));
  std::vector<Finding> findings;
  for (const auto& [cable, newest] : sights.front()) {
    size_t unique = 0;
    size_t seen = 0;
    size_t seen_at_all = 0;
    size_t together = 0;  // slow and given up, at the most in one look
    const Sight* told = nullptr;
    const char* what = "";
    for (size_t back = 0; back < sights.size(); ++back) {
      const auto sight = sights[back].find(cable);
      if (sight == sights[back].end()) continue;
      ++seen_at_all;
      if (back <= thresholds.persist) {
        ++seen;
        unique += sight->second.unique ? 1 : 0;
        together = std::max(together, sight->second.blamed->bad.size());
      }
      const bool better = told == nullptr || (sight->second.unique && !told->unique);
      if (better && !sight->second.cells.empty()) {
        told = &sight->second;
        what = looks[back].what;
      }
    }
    if (told == nullptr || !told->unique) continue;
    if (!newest.unique && unique < thresholds.link_unique) continue;
    Finding finding = Describe(cable, *told, *told->blamed, what);
    // A single queue pair is more often unlucky than alone on a bad path.
    const bool lasting = together == 1 ? seen_at_all == looks.size() : seen >= thresholds.persist;
    if (lasting && unique >= thresholds.link_unique) {
      finding.confidence = 0.9;
      finding.confirmed_by = "slow";
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace c4::c4d
