#include "c4d_master/recovery/downtime.h"

#include <algorithm>

namespace c4::c4d::recovery {
namespace {

// Moments of different clocks may contradict each other.
int64_t Between(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns == 0 ? -1 : std::max<int64_t>(0, to_ns - from_ns);
}

}  // namespace

int64_t Downtime::total_ns() const {
  int64_t total = 0;
  for (const int64_t part : {lost_work_ns, detection_ns, isolation_ns, initialisation_ns}) {
    total += std::max<int64_t>(part, 0);
  }
  return total;
}

Downtime DowntimeOf(const Incident& incident) {
  const int64_t isolated_ns = std::max(incident.isolated_ns, incident.admitted_ns);
  return {.lost_work_ns = Between(incident.checkpoint_ns, incident.onset_ns),
          .detection_ns = Between(incident.onset_ns, incident.confirmed_ns),
          .isolation_ns = Between(incident.confirmed_ns, isolated_ns),
          .initialisation_ns = Between(isolated_ns, incident.running_ns)};
}

int64_t RestartCostNs(const Incident& incident) {
  const Downtime downtime = DowntimeOf(incident);
  const int64_t again_ns = incident.syndrome == kFailSlow
                               ? Between(incident.checkpoint_ns, incident.admitted_ns)
                               : downtime.lost_work_ns;
  return std::max<int64_t>(again_ns, 0) +
         std::max<int64_t>(Between(incident.admitted_ns, incident.running_ns), 0);
}

}  // namespace c4::c4d::recovery
