#include "c4a/pacing.h"

#include <algorithm>
#include <limits>

namespace c4::agent {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// Far from the ends of the type, so that no sum overflows.
constexpr int64_t kLongAgoNs = std::numeric_limits<int64_t>::min() / 4;

}  // namespace

Pacing::Pacing(uint32_t per_second, uint32_t burst)
    : gap_ns_((kSecondNs + std::max<int64_t>(per_second, 1) - 1) / std::max<int64_t>(per_second, 1)),
      slack_ns_((std::max<int64_t>(burst, 1) - 1) * gap_ns_),
      due_ns_(kLongAgoNs),
      now_ns_(kLongAgoNs) {}

bool Pacing::Take(int64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  if (now_ns_ < NextNs()) return false;
  due_ns_ = std::max(due_ns_, now_ns_) + gap_ns_;
  return true;
}

}  // namespace c4::agent
