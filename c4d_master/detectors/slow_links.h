// Which links between switches slow queue pairs share, by several looks at the windows: queue pairs come and
// go on a slow link, as the transport gives paths up and C4P moves them, but the link stays the same. A link
// is named where the newest look names it, or cannot tell it from others that earlier looks could; it is
// certain when it was seen again and again.
//
// Pure but for the questions to the PathSource, which never waits; any thread; no errors.
#pragma once

#include <functional>
#include <vector>

#include "c4d_master/detectors/blame_link.h"
#include "c4d_master/detectors/cells.h"
#include "c4d_master/finding.h"

namespace c4::c4d {

struct Look {
  std::vector<Cell> cells;
  std::vector<const Cell*> slow;  // those of them that neither a NIC nor a late rank explains
};

// Whether there are better reasons for this cell to be slow, so that it speaks neither for nor against a
// path.
using Excused = std::function<bool(const Cell&)>;

// `what`: "are slow", for the evidence.
struct LookBlame {
  LinkBlame blame;
  std::vector<const Cell*> bad;  // of its witnesses the first ones
  const char* what = "";
};

// `fenced`: paths that were given up lately; they are asked where slow cells alone name no link.
LookBlame BlameLook(const Look& look, const Excused& excused, const std::vector<Witness>& fenced,
                    PathSource* paths, const SlowThresholds& thresholds);

// `looks`: the newest first, SlowThresholds::alone_persist more before it. The findings about links; none
// where none can be named. Those that are certain have confidence 0.9 and "slow" in confirmed_by.
std::vector<Finding> NameSlowLinks(const std::vector<LookBlame>& looks, const SlowThresholds& thresholds);

}  // namespace c4::c4d
