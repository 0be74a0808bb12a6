// Which queue pairs lost their path lately: the transport fenced them (no byte moved while some were in
// flight), and built them again on another path. Found by comparing what an agent told last of a queue pair
// with what it tells now: its count of fences has grown, and the ends that it had before are those of the
// path that it lost. Batches come once a second; of a queue pair that was fenced twice between two of them
// only the first path is known.
//
// A process that is seen for the first time has lost nothing yet, whatever its counts. Bounded in time and
// number. Owned and called by one thread; no errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "c4d_master/job_state.h"

namespace c4::c4d {

struct LostPath {
  ProcessKey process;  // the sender
  uint64_t communicator_id = 0;
  uint32_t rank = 0;  // in the communicator
  uint32_t peer = 0;
  uint32_t channel = 0;
  uint32_t index = 0;
  std::string local;  // as they were
  std::string remote;
  uint64_t number = 0;        // of the queue pair, as it was
  uint32_t fences = 0;        // how many there were between the two batches
  int64_t after_ns = kNever;  // it happened after this batch of the sender …
  int64_t at_ns = kNever;     // … and before this one
  // What was posted to it last came through before the former batch, if all had by then. Nothing says so of
  // one that was idle, or stuck.
  int64_t worked_ns = kNever;
};

class FenceLog {
 public:
  // Two batches of one host, one after the other.
  void Observe(const std::vector<Process>& before, int64_t before_ns, const std::vector<Process>& now,
               int64_t now_ns);

  const std::deque<LostPath>& recent() const { return recent_; }
  void Clear() { recent_.clear(); }

  static constexpr int64_t kKeepNs = 60 * kSecondNs;
  static constexpr size_t kMost = 20'000;

 private:
  std::deque<LostPath> recent_;  // by at_ns of their hosts, oldest first or nearly so
};

}  // namespace c4::c4d
