#include "c4a/master_clock.h"

#include <algorithm>
#include <cstdlib>

namespace c4::agent {

// How far two clocks may part in that time, rounded up.
int64_t MasterClock::DriftOver(int64_t ns) {
  return ns / 1'000'000 * kDriftPpm + kDriftPpm;
}

int64_t MasterClock::ErrorAt(const RoundTrip& trip, int64_t now_ns) {
  return trip.error_ns + DriftOver(std::abs(now_ns - trip.at_ns));
}

void MasterClock::Sample(uint64_t master_epoch, int64_t sent_ns, int64_t master_received_ns,
                         int64_t master_sent_ns, int64_t answered_ns) {
  if (master_epoch != master_epoch_) {
    master_epoch_ = master_epoch;
    trips_.clear();
  }
  if (master_received_ns <= 0 || master_sent_ns < master_received_ns || sent_ns < 0 || answered_ns < sent_ns)
    return;
  const int64_t node_took_ns = answered_ns - sent_ns;
  const int64_t round_trip_ns = node_took_ns - (master_sent_ns - master_received_ns);
  // The two clocks may count the master's own time a little differently.
  if (round_trip_ns < -DriftOver(node_took_ns)) return;
  // From the middle of the one span to the middle of the other.
  const int64_t master_middle_ns = master_received_ns + (master_sent_ns - master_received_ns) / 2;
  const RoundTrip trip{master_middle_ns - (sent_ns + node_took_ns / 2),
                       (std::max<int64_t>(0, round_trip_ns) + 1) / 2 + DriftOver(node_took_ns), answered_ns};
  while (!trips_.empty() && ErrorAt(trips_.back(), answered_ns) >= trip.error_ns) trips_.pop_back();
  trips_.push_back(trip);
  while (trips_.front().at_ns < answered_ns - kWindowNs) trips_.pop_front();
}

std::optional<MasterClock::Relation> MasterClock::At(int64_t now_ns) const {
  if (trips_.empty()) return std::nullopt;
  const RoundTrip* best = &trips_.front();
  for (const RoundTrip& trip : trips_) {
    if (ErrorAt(trip, now_ns) < ErrorAt(*best, now_ns)) best = &trip;
  }
  return Relation{best->offset_ns, ErrorAt(*best, now_ns), std::max<int64_t>(0, now_ns - best->at_ns)};
}

}  // namespace c4::agent
