#include "analysis/dump_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace c4::analysis {
namespace {

struct Known {
  bool point_to_point = false;
  bool differing = false;  // some dump's last operation is not the last one that it lists
  bool everybody = false;  // the default group
  int64_t first = 1;       // number of its first operation
  std::set<int> ranks;     // that know anything of it
  std::vector<int> members;
};

bool KnowsOf(const GroupProgress& group) {
  return group.last_entered >= 0 || group.seen_entered >= 0 || group.point_to_point;
}

std::map<std::string, Known> Collect(const std::vector<RankDump>& dumps) {
  std::map<std::string, Known> groups;
  for (const RankDump& dump : dumps) {
    for (const auto& [name, group] : dump.groups) {
      Known& known = groups[name];
      known.point_to_point = known.point_to_point || group.point_to_point;
      known.differing =
          known.differing || (group.seen_entered >= 0 && group.seen_entered != group.last_entered);
      known.everybody = known.everybody || group.description == "default_pg";
      if (group.operations.contains(0)) known.first = 0;
      if (KnowsOf(group)) known.ranks.insert(dump.rank);
      if (known.members.empty()) known.members = group.members;
    }
  }
  return groups;
}

}  // namespace

void MakeComparable(std::vector<RankDump>* dumps) {
  const std::map<std::string, Known> groups = Collect(*dumps);
  std::set<int> all;
  for (const RankDump& dump : *dumps) all.insert(dump.rank);
  for (const auto& [name, known] : groups) all.insert(known.members.begin(), known.members.end());
  for (RankDump& dump : *dumps) {
    for (auto& [name, group] : dump.groups) {
      const Known& known = groups.at(name);
      group.point_to_point = known.point_to_point;
      if (known.point_to_point || known.differing) {
        group.last_entered = group.seen_entered;
        group.last_completed = group.seen_completed;
      }
      // -1 also where the first one is under way.
      if (group.last_entered >= known.first)
        group.last_completed = std::max(group.last_completed, known.first - 1);
      if (!group.members.empty()) continue;
      const std::set<int>& ranks = known.everybody ? all : known.ranks;
      group.members = known.members.empty() ? std::vector<int>(ranks.begin(), ranks.end()) : known.members;
    }
  }
}

}  // namespace c4::analysis
