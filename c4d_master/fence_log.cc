#include "c4d_master/fence_log.h"

#include <algorithm>

namespace c4::c4d {
namespace {

bool IsSame(const QueuePair& a, const QueuePair& b) {
  return a.sends == b.sends && a.peer == b.peer && a.channel == b.channel && a.index == b.index &&
         a.carrier == b.carrier;
}

// Nearly always at the same place as in the batch before.
template <typename T, typename Same>
const T* FindAt(const std::vector<T>& items, size_t likely, const Same& same) {
  if (likely < items.size() && same(items[likely])) return &items[likely];
  const auto it = std::find_if(items.begin(), items.end(), same);
  return it == items.end() ? nullptr : &*it;
}

}  // namespace

void FenceLog::Observe(const std::vector<Process>& before, int64_t before_ns, const std::vector<Process>& now,
                       int64_t now_ns) {
  for (size_t i = 0; i < now.size(); ++i) {
    const Process* old = FindAt(before, i, [&](const Process& other) { return other.key == now[i].key; });
    if (old == nullptr) continue;
    for (size_t j = 0; j < now[i].communicators.size(); ++j) {
      const Membership& membership = now[i].communicators[j];
      const Membership* former = nullptr;
      for (size_t k = 0; k < membership.queue_pairs.size(); ++k) {
        const QueuePair& queue_pair = membership.queue_pairs[k];
        if (!queue_pair.sends || queue_pair.fences == 0) continue;
        if (former == nullptr) {
          former = FindAt(old->communicators, j, [&](const Membership& other) {
            return other.communicator_id == membership.communicator_id && other.rank == membership.rank;
          });
          if (former == nullptr) break;
        }
        const QueuePair* lost =
            FindAt(former->queue_pairs, k, [&](const QueuePair& other) { return IsSame(other, queue_pair); });
        if (lost == nullptr || queue_pair.fences <= lost->fences) continue;
        recent_.push_back({now[i].key, membership.communicator_id, membership.rank, queue_pair.peer,
                           queue_pair.channel, queue_pair.index, lost->local, lost->remote, lost->number,
                           queue_pair.fences - lost->fences, before_ns, now_ns,
                           lost->completed_bytes == lost->posted_bytes ? lost->last_post_at_ns : kNever});
      }
    }
  }
  while (!recent_.empty() && (recent_.size() > kMost || now_ns - recent_.front().at_ns > kKeepNs)) {
    recent_.pop_front();
  }
}

}  // namespace c4::c4d
