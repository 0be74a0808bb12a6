// What the nodes' hardware said lately (telemetry: HardwareEvent), and which of it belongs to a finding:
// events of its hosts in a window around its onset. They are evidence; nobody is blamed for them alone.
//
// Agents repeat the events of the last minutes in each batch: one is known by its agent's epoch and number.
// Bounded in time and number. Owned and called by one thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "c4/v1/c4d.pb.h"
#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"

namespace c4::v1 {
class TelemetryBatch;
}  // namespace c4::v1

namespace c4::c4d {

// A fault of hardware shows within seconds, but for the driver's own time-outs and for what is read seldom.
inline constexpr int64_t kHardwareBeforeNs = 60 * kSecondNs;
// A GPU that fails is told of by its driver after its kernel stood still, and a counter after it has grown.
inline constexpr int64_t kHardwareAfterNs = 30 * kSecondNs;
// Of a verdict, the nearest to its onset; and of these of one kind.
inline constexpr size_t kMostSigns = 16;
inline constexpr size_t kMostSignsOfKind = 6;

class HardwareLog {
 public:
  // A batch that was taken in; `as_of_ns`: its time on the master's clock. Gives how many were new.
  size_t Observe(const v1::TelemetryBatch& batch, int64_t as_of_ns);

  // Puts what its hosts said around its onset into each finding.
  void Attach(const JobSnapshot& snapshot, Now now, std::vector<Finding>* findings) const;

  size_t size() const { return size_; }

  static constexpr int64_t kKeepNs = 1800 * kSecondNs;
  static constexpr size_t kMostOfBatch = 256;
  static constexpr size_t kMostOfHost = 256;
  static constexpr size_t kMost = 20'000;

 private:
  struct Event {
    uint64_t epoch = 0;
    uint64_t sequence = 0;
    int64_t at_ns = 0;
    HardwareSign sign;  // but for its time
  };
  void DropOldest();

  std::map<std::string, std::deque<Event>> hosts_;
  size_t size_ = 0;
};

// Adds the signs to those that the verdict has, and a sentence of evidence for each of all. What a verdict
// was given stays with it, for as long as it may be open. True when there is a new one.
bool MergeSigns(const std::vector<HardwareSign>& signs, v1::Verdict* verdict);

// "GPU 3 of node17: Xid 79, the GPU has fallen off the bus, 1.2 s before".
std::string SignText(const v1::HardwareSign& sign, int64_t onset_unix_ns);

}  // namespace c4::c4d
