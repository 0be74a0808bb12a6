// How often the master of a job wants to hear from each of its agents. Of a small job at every look of an
// agent. Of a large one less often, so that the batches a second stay about the same, but once a second at
// least, and so often that no threshold of the policy notices. While something stands still in the job longer
// than usual, a rank has just ended, or a verdict of that kind is open, again at every look: agents see for
// themselves what is out of the ordinary on their node (c4a/cadence.h), and learn here that it is so on
// another one.
//
// Time comes with the snapshots. One thread; no errors.
#pragma once

#include <cstdint>
#include <vector>

#include "c4d_master/finding.h"
#include "c4d_master/job_snapshot.h"
#include "c4d_master/policy.h"

namespace c4::c4d {

class Hearing {
 public:
  static constexpr int64_t kLookNs = 250'000'000;     // agents look so often if nobody says otherwise
  static constexpr int64_t kPerHostNs = 4'000'000;    // some 250 batches a second,
  static constexpr int64_t kLongestNs = kSecondNs;    // until each host comes once a second
  static constexpr int64_t kUnusualNs = kSecondNs;    // stands still for so long, and longer than ever
  static constexpr int64_t kAlertNs = 2 * kSecondNs;  // after the last sign of trouble

  // `per_host_ns`: what a host's batch may take of the master's time, and more; 0: every look is wanted.
  explicit Hearing(int64_t per_host_ns = kPerHostNs) : per_host_ns_(per_host_ns) {}

  // Of an undisturbed job; 0: at every look of the agents.
  int64_t UsualNs(size_t hosts, const Policy& policy) const;

  // What a look at the job gave.
  void Observe(const JobSnapshot& snapshot, const std::vector<Finding>& findings, const Policy& policy,
               int64_t now_ns);

  // What agents are told.
  int64_t interval_ns() const { return interval_ns_; }

 private:
  const int64_t per_host_ns_;
  int64_t interval_ns_ = 0;
  int64_t alert_until_ns_ = kNever;
};

}  // namespace c4::c4d
