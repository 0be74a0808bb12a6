// Which of several path masters leads: whoever holds the lease in the store that they share and has renewed
// it in time. Others watch it, and take it when it has not changed for as long as it is given, by their own
// clocks: no two machines need the same time.
//
// A pure state machine: it says what to do at the store, and is told what came of it. Each leader has an
// epoch of its own, higher than all before; the store writes a leader's changes only while the epoch there is
// its (EtcdWrite compares), and what it decides is said to agents only once that is written. So a leader
// that was cut off, stopped or slow can do no harm, whenever it notices; lease times only decide how soon
// somebody else goes on.
//
// Times are one monotonic clock's. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace c4::c4p {

// In the store, under one key.
struct LeaseRecord {
  std::string holder;     // like nobody else
  uint64_t epoch = 0;     // of its leadership
  uint64_t renewals = 0;  // a renewal changes it
  bool operator==(const LeaseRecord&) const = default;
};

// What a read gave: the record, and the store's number of the change that made it (0: there is none).
struct LeaseSeen {
  LeaseRecord record;
  int64_t revision = 0;
};

struct LeaseTimes {
  int64_t given_ns = 1'500'000'000;  // without a renewal; then others take it
  int64_t renew_ns = 300'000'000;    // between renewals, and looks of those who wait
};

class Leadership {
 public:
  // `wished`: the epoch to lead with, if it is higher than all before (a time in ns).
  Leadership(std::string self, uint64_t wished, const LeaseTimes& times)
      : self_(std::move(self)), wished_(wished), times_(times) {}

  // Something to do at the store; one at a time, until Seen, Wrote or Failed tells its end.
  struct Step {
    bool write = false;    // else: read
    LeaseRecord record;    // to write,
    int64_t revision = 0;  // if the record's change is still this one
    bool takes = false;    // the write makes this one the leader of a new epoch
  };
  std::optional<Step> Next(int64_t now_ns);
  void Seen(const LeaseSeen& seen, int64_t now_ns);
  // False: the record had changed, nothing was written.
  void Wrote(bool written, int64_t revision, int64_t now_ns);
  // The store did not answer: whether it wrote is not known.
  void Failed(int64_t now_ns);

  enum class State { kWaits, kLeads, kLost };
  // kLost is for ever: this process has led, and does no more.
  State state(int64_t now_ns) const;
  uint64_t epoch() const { return epoch_; }  // of its own leadership; 0: none yet
  // Who led when it was last seen; empty: nobody, or this one.
  const std::string& holder() const { return seen_.record.holder; }

 private:
  const std::string self_;
  const uint64_t wished_;
  const LeaseTimes times_;
  std::optional<Step> under_way_;
  int64_t asked_ns_ = 0;
  int64_t next_ns_ = 0;
  bool read_first_ = true;  // what is there is not known, or not known any more
  LeaseSeen seen_;
  int64_t unchanged_since_ns_ = -1;
  uint64_t epoch_ = 0;
  int64_t valid_until_ns_ = 0;  // as a leader
  bool lost_ = false;
};

}  // namespace c4::c4p
