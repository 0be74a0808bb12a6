// Path lost: queue pairs were fenced, because nothing moved on them any more, and the transport went on over
// other paths. The job runs; what was lost is a link, and this says which. docs/verdicts.md has the rules.
//
// A fence by itself says little: under congestion a healthy connection may stand still for long enough. So a
// few fences are a suspicion, and certain is only what a dead link does and congestion does not: all queue
// pairs over one link lose it, several hosts' at once, none goes on over it, and elsewhere hardly any does.
//
// Pure but for the questions to the PathSource, which never waits; any thread; no errors.
#pragma once

#include <vector>

#include "c4d_master/detectors/blame_link.h"
#include "c4d_master/fence_log.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct PathLostThresholds {
  int64_t window_ns = 10 * kSecondNs;  // fences that belong together; also: how long one is told of
  int64_t settle_ns = 2 * kSecondNs;   // until all that take a dead link have shown that they do
  int64_t dead_ns = 5 * kSecondNs;     // without known paths: queue pairs that cannot be built again
  int64_t slack_ns = kSecondNs / 5;    // between the clocks of two hosts
  size_t least = 3;                    // queue pairs over the link, of two pairs of hosts at least
  double contradicting = 0.05;         // of those over the link: that go on over it
  double elsewhere = 0.1;              // of those that do not take it: that were fenced as well
  // What a dead link holds up elsewhere is fenced as well; that the link is dead shows by what takes it.
  LinkBlameThresholds link = {.explained = 0.3};
};

std::vector<Finding> DetectLostPaths(const JobSnapshot& snapshot, const FenceLog& fences, PathSource* paths,
                                     int64_t now_ns, const PathLostThresholds& thresholds);

}  // namespace c4::c4d
