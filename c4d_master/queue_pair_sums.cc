#include "c4d_master/queue_pair_sums.h"

#include <algorithm>

namespace c4::c4d {
namespace {

QueuePairSums Sum(const Membership& membership) {
  QueuePairSums sums;
  for (const QueuePair& queue_pair : membership.queue_pairs) {
    sums.moved_bytes += queue_pair.moved_bytes;
    sums.moved_at_ns = std::max(sums.moved_at_ns, queue_pair.last_progress_at_ns);
    if (!queue_pair.sends) continue;
    if (queue_pair.last_heard_at_ns != kNever && !queue_pair.dead) {
      sums.outstanding_since_ns =
          std::min(sums.outstanding_since_ns, queue_pair.last_heard_at_ns + kSignOfLifeNs);
    }
    if (queue_pair.posted_bytes <= queue_pair.completed_bytes) continue;
    const int64_t last_ns = std::max(queue_pair.last_progress_at_ns, queue_pair.last_post_at_ns);
    if (last_ns != kNever) sums.outstanding_since_ns = std::min(sums.outstanding_since_ns, last_ns);
  }
  return sums;
}

}  // namespace

QueuePairSums SumsOf(const Membership& membership) {
  return membership.summed_at_revision == membership.revision ? membership.sums : Sum(membership);
}

void AddUp(Membership* membership) {
  membership->sums = Sum(*membership);
  membership->summed_at_revision = membership->revision;
}

}  // namespace c4::c4d
