#include "c4d_master/detectors/slow_switch.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

#include "absl/strings/str_join.h"
#include "c4d_master/link_names.h"
#include "service/text.h"

namespace c4::c4d {
namespace {

using service::Concat;

constexpr double kLeastExplained = 0.9;  // of the slow queue pairs: those that cross it
constexpr double kMostWell = 0.1;        // of those that cross it and are judged: those that are well

std::shared_ptr<const LinkPath> PathOf(const Cell& cell, PathSource* paths) {
  return paths->Find(std::string(cell.local), std::string(cell.remote));
}

// A host's own link is the first and the last: its upper end is a switch, of all others both ends are.
std::set<std::string_view> SwitchesOf(const LinkPath& path) {
  std::set<std::string_view> switches;
  for (size_t i = 0; i < path.size(); ++i) {
    switches.insert(UpperEndOf(path[i]));
    if (i > 0 && i + 1 < path.size()) switches.insert(LowerEndOf(path[i]));
  }
  return switches;
}

struct Crossed {
  size_t slow = 0;
  size_t well = 0;
};

}  // namespace

SlowSwitch FindSlowSwitch(const std::vector<Cell>& cells, PathSource* paths) {
  std::map<std::string, Crossed, std::less<>> crossed;
  size_t slow = 0;
  size_t well = 0;
  size_t unknown = 0;  // slow ones
  for (const Cell& cell : cells) {
    const bool is_well = cell.judged && !cell.bad() && !cell.unclear && cell.low.chunks >= 2;
    if (!cell.bad() && !is_well) continue;
    const std::shared_ptr<const LinkPath> path = PathOf(cell, paths);
    if (path == nullptr) {
      unknown += cell.bad() ? 1 : 0;
      continue;
    }
    (cell.bad() ? slow : well) += 1;
    for (const std::string_view name : SwitchesOf(*path)) {
      Crossed& of = crossed.try_emplace(std::string(name)).first->second;
      (cell.bad() ? of.slow : of.well) += 1;
    }
  }
  SlowSwitch found;
  if (slow == 0 || unknown > slow) return found;
  size_t least_well = SIZE_MAX;
  size_t most_slow = 0;
  for (const auto& [name, of] : crossed) {
    const bool explains = static_cast<double>(of.slow) >= kLeastExplained * static_cast<double>(slow);
    const bool contradicted =
        static_cast<double>(of.well) > kMostWell * static_cast<double>(of.slow + of.well);
    if (!explains || contradicted) continue;
    const bool same = of.well == least_well && of.slow == most_slow;
    const bool better = of.slow > most_slow || (of.slow == most_slow && of.well < least_well);
    if (better) found.names.clear();
    if (!better && !same) continue;
    least_well = of.well;
    most_slow = of.slow;
    found.names.push_back(name);
  }
  if (found.names.empty()) return found;
  found.others = well - least_well;
  const std::set<std::string_view> names(found.names.begin(), found.names.end());
  for (const Cell& cell : cells) {
    const std::shared_ptr<const LinkPath> path = cell.bad() ? PathOf(cell, paths) : nullptr;
    if (path == nullptr) continue;
    bool crosses = false;
    for (const std::string& link : *path) {
      if (!names.contains(UpperEndOf(link)) && !names.contains(LowerEndOf(link))) continue;
      found.links.insert(link);
      crosses = true;
    }
    if (crosses) found.slow.push_back(&cell);
  }
  return found;
}

Finding DescribeSwitch(const SlowSwitch& found) {
  Finding finding = DescribeCells(found.slow);
  finding.kind = CulpritKind::kAmbiguous;
  finding.links.assign(found.links.begin(), found.links.end());
  const std::string names = absl::StrJoin(found.names, " or ");
  finding.evidence.insert(
      finding.evidence.begin(),
      {"switch", Concat("the slow queue pairs are of many NICs and all cross ", names, " (",
                        found.slow.size(), "); ", found.others, " that do not are well")});
  finding.suggested_action = Concat(
      "look at the switch ", names,
      ": pauses that it gets and sends (PFC), full buffers; a host below it whose NIC sends pauses all "
      "the time (`ethtool -S`) is the usual cause");
  return finding;
}

}  // namespace c4::c4d
