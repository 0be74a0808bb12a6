// Whose NICs explain slow cells: the fewest that most slow cells touch. Where the engine says no addresses a
// rank stands for its NIC, and several ranks of a node for those that they may share. Part of DetectSlow
// (slow.h).
//
// Points into the cells and lives no longer. Pure functions; any thread; no errors.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "c4d_master/detectors/cells.h"
#include "c4d_master/detectors/queue_pair_ends.h"
#include "c4d_master/detectors/slow.h"

namespace c4::c4d {

struct Explanation {
  std::map<std::string, std::vector<const Cell*>> nics;   // by address
  std::map<std::string, std::vector<const Cell*>> nodes;  // by host
  std::vector<const Cell*> connections;                   // that neither explains
  bool ambiguous = false;  // these join two NICs that know nobody but each other
};

// `late`: processes that explain the cells that touch them.
Explanation Explain(const JobQueuePairs& all, const std::vector<Cell>& cells,
                    const std::set<const Process*>& late, const SlowThresholds& thresholds);

}  // namespace c4::c4d
