#include "c4d_master/host_update.h"

#include <algorithm>
#include <utility>

#include "c4d_master/queue_pair_sums.h"

namespace c4::c4d {
namespace {

bool IsSame(const QueuePair& a, const QueuePair& b) {
  return a.peer == b.peer && a.sends == b.sends && a.channel == b.channel && a.index == b.index &&
         a.carrier == b.carrier;
}

bool IsSame(const Membership& a, const Membership& b) {
  return a.communicator_id == b.communicator_id && a.rank == b.rank && a.rank_count == b.rank_count &&
         a.name == b.name &&
         std::equal(a.queue_pairs.begin(), a.queue_pairs.end(), b.queue_pairs.begin(), b.queue_pairs.end(),
                    [](const QueuePair& x, const QueuePair& y) { return IsSame(x, y); });
}

bool IsSame(const Process& a, const Process& b) {
  return a.key == b.key && a.rank == b.rank && a.incarnation == b.incarnation && a.owner_uid == b.owner_uid &&
         a.first_seen_at_ns == b.first_seen_at_ns &&
         std::equal(a.communicators.begin(), a.communicators.end(), b.communicators.begin(),
                    b.communicators.end(),
                    [](const Membership& x, const Membership& y) { return IsSame(x, y); });
}

// True where its addresses stay as they were.
bool Replace(Membership* held, Membership* next) {
  bool same = true;
  for (size_t i = 0; i < held->queue_pairs.size(); ++i) {
    QueuePair& queue_pair = held->queue_pairs[i];
    same = same && queue_pair.local == next->queue_pairs[i].local &&
           queue_pair.remote == next->queue_pairs[i].remote &&
           queue_pair.number == next->queue_pairs[i].number &&
           queue_pair.peer_number == next->queue_pairs[i].peer_number;
    queue_pair = std::move(next->queue_pairs[i]);
  }
  std::vector<QueuePair> queue_pairs = std::move(held->queue_pairs);
  const uint32_t revision = held->revision + 1;
  *held = std::move(*next);
  held->queue_pairs = std::move(queue_pairs);
  held->revision = revision;
  AddUp(held);
  return same;
}

}  // namespace

HostUpdate Replace(std::vector<Process>* held, std::vector<Process>* next) {
  if (!std::equal(held->begin(), held->end(), next->begin(), next->end(),
                  [](const Process& a, const Process& b) { return IsSame(a, b); })) {
    *held = std::move(*next);
    return HostUpdate::kMoved;
  }
  HostUpdate result = HostUpdate::kInPlace;
  for (size_t i = 0; i < held->size(); ++i) result = std::max(result, Replace(&(*held)[i], &(*next)[i]));
  return result;
}

HostUpdate Replace(Process* held, Process* next) {
  if (!IsSame(*held, *next)) {
    *held = std::move(*next);
    return HostUpdate::kMoved;
  }
  HostUpdate result = HostUpdate::kInPlace;
  for (size_t i = 0; i < held->communicators.size(); ++i) {
    if (!Replace(&held->communicators[i], &next->communicators[i])) result = HostUpdate::kEndpoints;
  }
  std::vector<Membership> communicators = std::move(held->communicators);
  *held = std::move(*next);
  held->communicators = std::move(communicators);
  return result;
}

}  // namespace c4::c4d
