// Which switch slow queue pairs share. A switch whose neighbours pause it (a PFC storm), or whose buffers are
// full, slows down all that crosses it: many NICs look slow at once, on it and at the other ends, and neither
// one of them nor one link explains the others. Nothing is named where paths are not known.
//
// Points into the cells and lives no longer. Pure but for the questions to the PathSource, which never waits;
// any thread; no errors.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "c4d_master/detectors/cells.h"
#include "c4d_master/path_source.h"

namespace c4::c4d {

struct SlowSwitch {
  std::vector<std::string> names;  // several where no queue pair tells them apart; empty: none is named
  std::set<std::string> links;     // directed, of these, which slow queue pairs take
  std::vector<const Cell*> slow;   // that cross one of them
  size_t others = 0;               // queue pairs that do not cross them, and are well
};

SlowSwitch FindSlowSwitch(const std::vector<Cell>& cells, PathSource* paths);

// The finding, ambiguous among the links of the switch: a suspicion. `found` names one.
Finding DescribeSwitch(const SlowSwitch& found);

}  // namespace c4::c4d
