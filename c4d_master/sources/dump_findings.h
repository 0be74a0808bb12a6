// What Flight Recorder dumps say of a job that stands still, as findings: the roots of the waits that
// analysis/dump_waits.h finds. Dumps are a moment's state. They are also written of jobs that work (on
// request), so a wait counts only when those who wait had called nothing for long as they were dumped.
//
// Pure functions; any thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "analysis/dump_waits.h"
#include "c4d_master/detectors/hang.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::c4d {

struct HeardDump {
  analysis::RankDump dump;
  int64_t written_unix_ns = 0;  // as its file says
};

// Dumps of one moment, one a rank.
struct HeardDumps {
  std::vector<HeardDump> dumps;
  size_t unreadable = 0;  // files that are no dump, or are cut off
  bool complete = false;  // no more have come for kDumpsCompleteNs
};

// Whose dump has not come after so long has written none.
inline constexpr int64_t kDumpsCompleteNs = 30 * kSecondNs;

// What the dumps say together, of a rank's dump only its times.
struct AnalysedDumps {
  struct Times {
    int64_t last_call_unix_ns = -1;  // -1: the dump does not say
    int64_t written_unix_ns = 0;
  };
  analysis::StalledRanks found;
  std::map<int, Times> times;  // by rank
  size_t unreadable = 0;
  bool complete = false;
};

// Takes seconds where there are thousands of dumps.
AnalysedDumps Analyse(HeardDumps heard);

// Suspected from `no_progress_ns` on, certain from `limit_ns` on; a dump that does not say when its rank
// called last makes a suspicion. A rank of which there is no dump is certain where all others have one, and
// so is an operation that all members are in and that does not end.
std::vector<Finding> FindInDumps(const AnalysedDumps& dumps, Now now, const HangThresholds& thresholds);

// Adds what the dumps say to what is known from elsewhere. A rank that is blamed already keeps that
// syndrome, and gains the evidence and the certainty. Where the snapshot has the process of a rank, it is
// named. Nothing is added when the job has moved on since the dumps.
void AddFindingsOfDumps(const std::vector<Finding>& of_dumps, const JobSnapshot& snapshot,
                        std::vector<Finding>* findings);

}  // namespace c4::c4d
