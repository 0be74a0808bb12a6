#include "c4d_master/alerts/outbox.h"

#include <algorithm>
#include <utility>

#include "service/text.h"

namespace c4::c4d {

std::optional<WaitingNotification> Outbox::Add(WaitingNotification notification) {
  Queue& queue = queues_[notification.target];
  std::optional<WaitingNotification> given_up;
  if (queue.waiting.size() >= kMaxWaiting) {
    const auto oldest = queue.waiting.begin() + (queue.under_way ? 1 : 0);
    given_up = std::move(*oldest);
    queue.waiting.erase(oldest);
  }
  queue.waiting.push_back(std::move(notification));
  return given_up;
}

std::vector<WaitingNotification> Outbox::Due(int64_t unix_ns) {
  std::vector<WaitingNotification> due;
  for (auto& [target, queue] : queues_) {
    if (queue.under_way || queue.waiting.empty()) continue;
    WaitingNotification& first = queue.waiting.front();
    // Further away than any pause: the wall clock was set back.
    const bool early = first.next_unix_ns > unix_ns && first.next_unix_ns - unix_ns <= kLongestPauseNs;
    if (early) continue;
    queue.under_way = true;
    ++first.attempts;
    due.push_back(first);
  }
  return due;
}

std::optional<Outbox::Finish> Outbox::Finished(uint64_t number, const AlertTarget& target,
                                               const absl::Status& outcome, int64_t unix_ns) {
  const auto found = queues_.find(target.name);
  if (found == queues_.end() || !found->second.under_way || found->second.waiting.front().number != number) {
    return std::nullopt;
  }
  Queue& queue = found->second;
  WaitingNotification& first = queue.waiting.front();
  queue.under_way = false;
  first.trouble = service::ToUtf8(std::string(outcome.message()));
  const bool for_good = !target.retry_refused && absl::IsFailedPrecondition(outcome);
  const bool once = first.kind == Notification::Kind::kRefresh;
  const bool too_old = unix_ns - first.made_unix_ns >= target.retry_for_ns;
  if (outcome.ok() || for_good || once || too_old) {
    Finish finish = {outcome.ok() ? Fate::kDelivered : Fate::kGivenUp, std::move(first)};
    queue.waiting.pop_front();
    return finish;
  }
  const uint32_t doublings = std::min<uint32_t>(first.attempts - 1, 20);
  first.next_unix_ns = unix_ns + std::min(kFirstPauseNs << doublings, kLongestPauseNs);
  return Finish{Fate::kAgain, first};
}

void Outbox::Hurry(const std::string& target) {
  const auto found = queues_.find(target);
  if (found == queues_.end() || found->second.waiting.empty()) return;
  found->second.waiting.front().next_unix_ns = 0;
}

std::vector<WaitingNotification> Outbox::Drop(const std::string& target) {
  const auto found = queues_.find(target);
  if (found == queues_.end()) return {};
  std::vector<WaitingNotification> dropped(std::make_move_iterator(found->second.waiting.begin()),
                                           std::make_move_iterator(found->second.waiting.end()));
  queues_.erase(found);
  return dropped;
}

size_t Outbox::Waiting(const std::string& target) const {
  const auto found = queues_.find(target);
  return found == queues_.end() ? 0 : found->second.waiting.size();
}

const WaitingNotification* Outbox::Oldest(const std::string& target) const {
  const auto found = queues_.find(target);
  return found == queues_.end() || found->second.waiting.empty() ? nullptr : &found->second.waiting.front();
}

std::vector<std::string> Outbox::Targets() const {
  std::vector<std::string> targets;
  for (const auto& [target, queue] : queues_) targets.push_back(target);
  return targets;
}

}  // namespace c4::c4d
