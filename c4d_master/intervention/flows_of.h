// The queue pairs of a job as experiments see them (flow.h), from the one set of measurements that the
// detectors use: the cells of the latency matrix, over the same windows.
//
// Of a large job only those are told of that have a communicator or a host in common with `about`, kMostFlows
// at most, those of `about` first. Pure but for the questions to the PathSource, which never waits.
#pragma once

#include <vector>

#include "c4d_master/detectors/slow.h"
#include "c4d_master/intervention/flow.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/path_source.h"

namespace c4::c4d {

inline constexpr size_t kMostFlows = 8192;

std::vector<Flow> FlowsOf(const JobSnapshot& snapshot, const Windows& windows, PathSource* paths,
                          const SlowThresholds& thresholds, const std::vector<Flow>& about);

}  // namespace c4::c4d
