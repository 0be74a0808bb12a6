// The latency matrix of a job as c4 matrix asks for it: the rows of some ranks or all, as many cells as fit
// into a message, and how many there are beside those. Pure functions of what they are given; one thread.
#pragma once

#include <cstddef>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/detectors/slow.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/windows.h"

namespace c4::c4d {

inline constexpr size_t kMostMatrixCells = 200'000;  // some 30 MB

// Of more cells than are asked for, or than kMostMatrixCells, those that are slowest for what is usual.
void FillMatrix(const JobSnapshot& snapshot, const Windows& windows, const SlowThresholds& thresholds,
                const v1::GetMatrixRequest& request, v1::GetMatrixReply* reply);

}  // namespace c4::c4d
