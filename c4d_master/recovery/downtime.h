// What an incident cost, in the parts of the C4 paper's table 3: work since the last checkpoint that is done
// again, detection, diagnosis and isolation, re-initialisation. Pure.
#pragma once

#include "c4d_master/recovery/model.h"

namespace c4::c4d::recovery {

struct Downtime {
  // Nanoseconds; -1: not known, or not yet.
  int64_t lost_work_ns = -1;  // from the checkpoint that the job began with again to the onset
  int64_t detection_ns = -1;  // from the onset to the confirmed verdict
  int64_t isolation_ns =
      -1;  // from there to the last node that was isolated (or that it was found that none is to be)
  int64_t initialisation_ns = -1;  // from there until every rank runs again

  int64_t total_ns() const;  // of the parts that are known
};

Downtime DowntimeOf(const Incident& incident);

// Of one that has recovered: the work that is done again and the time until every rank ran, without that for
// finding out. A job that was only slow worked until it was ended, else until the onset.
int64_t RestartCostNs(const Incident& incident);

}  // namespace c4::c4d::recovery
