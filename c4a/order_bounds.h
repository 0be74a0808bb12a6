// What a prober takes of a master's orders: so many a second, of so many ports and targets. A value, one
// thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "c4a/prober.h"

namespace c4::agent {

class OrderBounds {
 public:
  // ResourceExhausted: more than the options allow. `queued`: tuples that wait already.
  absl::Status Check(const ProbeOrder& order, const ProberOptions& options, size_t queued, int64_t now_ns);

 private:
  int64_t second_ns_ = 0;  // when the present second began
  uint32_t orders_ = 0;    // in it
};

}  // namespace c4::agent
