// Whether a stream that has bytes on the network has stalled: nothing of them was acknowledged for 20 ms or
// four times the gap that is usual between acknowledgements, or longer than a round trip may take as these
// went lately, whichever is longest. Linux is in no hurry to acknowledge what its process does not read:
// unless the peer's process was heard in the meantime, it takes 40 ms longer. A receiver that does not read
// (its window is closed) is no stall, and neither is a process that did not run in between: a stall takes
// several readings. After each stall the next takes twice as long, until all has been well for a while: where
// paths are merely slow, that ends the alarms.
//
// Pure: readings and time are handed in. One thread.
#pragma once

#include <cstdint>

namespace c4 {

struct StreamReading {
  uint64_t acked_bytes = 0;
  bool outstanding = false;  // something is on the network
  bool window_open = true;   // or the receiver's kernel does not even answer probes of a closed one
  // Twice the round trip and four times its deviation: behind full queues answers take that long.
  uint64_t patience_ns = 0;
  // When the peer's process was last heard, on whatever stream.
  uint64_t heard_ns = 0;
};

class StallRule {
 public:
  static constexpr uint64_t kSampleNs = 5000000;
  static constexpr uint64_t kLeastNs = 20000000;
  static constexpr uint64_t kMostNs = 2000000000;
  static constexpr uint64_t kLateAckNs = 40000000;  // TCP_DELACK_MIN (linux/include/net/tcp.h)
  static constexpr int kLeastReadings = 3;
  static constexpr uint64_t kGaps = 4;
  static constexpr int kMostStrikes = 5;
  static constexpr int kForgive = 40;  // readings with progress

  // Whether it is time for a reading; at most one each kSampleNs.
  bool Due(uint64_t now_ns) const { return now_ns - last_reading_ns_ >= kSampleNs; }
  // True: stalled.
  bool Read(const StreamReading& reading, uint64_t now_ns);
  // Before the first bytes after a pause, or on another stream: what went before says nothing of now. What is
  // usual stays known.
  void Restart() { last_progress_ns_ = 0; }
  uint64_t limit_ns() const;

 private:
  uint64_t acked_bytes_ = 0;
  uint64_t last_reading_ns_ = 0;
  uint64_t last_progress_ns_ = 0;  // or when there was nothing to wait for
  uint64_t usual_gap_ns_ = 0;
  int vain_readings_ = 0;
  int good_readings_ = 0;
  int strikes_ = 0;
};

}  // namespace c4
