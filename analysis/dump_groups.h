// Makes the groups of several ranks' dumps comparable. Operation numbers then count the same on all ranks,
// and groups whose members a dump does not tell get them: PyTorch writes only the last group of a back end
// that is not NCCL, without its name.
//
// Pure; any thread; no errors.
#pragma once

#include <vector>

#include "analysis/dump_waits.h"

namespace c4::analysis {

void MakeComparable(std::vector<RankDump>* dumps);

}  // namespace c4::analysis
