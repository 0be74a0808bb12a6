// How the master's monotonic clock relates to the node's, by round trips: the quickest of the last minute
// wins, and the error that goes with it (half its round trip) grows with its age, because clocks drift. Both
// ways need not take equally long: the truth lies anywhere within the error, and nowhere else.
//
// Pure: times are handed in. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace c4::agent {

class MasterClock {
 public:
  static constexpr int64_t kWindowNs = 60'000'000'000;
  static constexpr int64_t kDriftPpm = 100;  // two clocks of 50 ppm each

  struct Relation {
    int64_t offset_ns = 0;  // master's clock minus node's
    int64_t error_ns = 0;
    int64_t age_ns = 0;
  };

  // The request left at `sent_ns` and the answer came at `answered_ns` (node's clock); the master took the
  // one in at `master_received_ns` and sent the other at `master_sent_ns` (its clock). What cannot be is
  // ignored.
  void Sample(uint64_t master_epoch, int64_t sent_ns, int64_t master_received_ns, int64_t master_sent_ns,
              int64_t answered_ns);
  // Nothing before the first sample of this master.
  std::optional<Relation> At(int64_t now_ns) const;

 private:
  struct RoundTrip {
    int64_t offset_ns;
    int64_t error_ns;
    int64_t at_ns;
  };
  static int64_t DriftOver(int64_t ns);
  static int64_t ErrorAt(const RoundTrip& trip, int64_t now_ns);

  uint64_t master_epoch_ = 0;
  std::deque<RoundTrip> trips_;  // oldest first; none that a later one beats
};

}  // namespace c4::agent
