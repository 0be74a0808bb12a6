#include "c4a/master_clock.h"

#include <algorithm>

namespace c4::agent {

int64_t MasterClock::ErrorAt(const RoundTrip& trip, int64_t now_ns) {
  return trip.error_ns + std::max<int64_t>(0, now_ns - trip.at_ns) / 1'000'000 * kDriftPpm;
}

void MasterClock::Sample(uint64_t master_epoch, int64_t sent_ns, int64_t master_received_ns,
                         int64_t master_sent_ns, int64_t answered_ns) {
  if (master_epoch != master_epoch_) {
    master_epoch_ = master_epoch;
    trips_.clear();
  }
  const int64_t round_trip_ns = (answered_ns - sent_ns) - (master_sent_ns - master_received_ns);
  if (master_received_ns == 0 || master_sent_ns < master_received_ns || round_trip_ns < 0) return;
  const RoundTrip trip{((master_received_ns - sent_ns) + (master_sent_ns - answered_ns)) / 2,
                       (round_trip_ns + 1) / 2, answered_ns};
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
