#include "ccl/engine/host/stream.h"

#include <algorithm>
#include <chrono>

namespace c4::host {
namespace {

// How long a thread that waits sleeps before it looks again whether it could run something itself: longer and
// longer, as somebody else is at it. The end of what it waits for wakes it.
constexpr auto kLookAgain = std::chrono::milliseconds(1);
constexpr auto kLookAgainAtLast = std::chrono::milliseconds(32);

}  // namespace

uint64_t Stream::TakeTicket(std::weak_ptr<Driver> driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drivers_.push_back(std::move(driver));
  return ++taken_;
}

bool Stream::IsTurn(uint64_t ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ + 1 >= ticket;
}

bool Stream::WaitForTurn(uint64_t ticket, int ms) {
  return WaitUntilOver(ticket - 1, std::chrono::milliseconds(ms));
}

bool Stream::WaitUntilOver(uint64_t ticket, std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ >= ticket) return true;
  const auto entry = awaited_.insert(ticket);
  const bool over = changed_.wait_for(lock, limit, [&] { return finished_ >= ticket; });
  awaited_.erase(entry);
  return over;
}

void Stream::Finish(uint64_t ticket, const Result& result) {
  std::vector<std::function<void()>> over;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!result.ok() && failure_.ok()) failure_ = result;
    if (ticket == finished_ + 1) {
      ++finished_;
      drivers_.pop_front();
    } else {
      early_.insert(ticket);
    }
    while (!early_.empty() && *early_.begin() == finished_ + 1) {
      early_.erase(early_.begin());
      ++finished_;
      drivers_.pop_front();
    }
    const auto left = std::partition(waiting_.begin(), waiting_.end(),
                                     [&](const auto& entry) { return entry.first > finished_; });
    for (auto it = left; it != waiting_.end(); ++it) over.push_back(std::move(it->second));
    waiting_.erase(left, waiting_.end());
    if (!awaited_.empty() && *awaited_.begin() <= finished_) changed_.notify_all();
  }
  for (const std::function<void()>& call : over) call();
}

Result Stream::Synchronize() {
  C4_RETURN_IF_ERROR(AwaitTicket(LastTicket()));
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failure_, Ok());
}

uint64_t Stream::LastTicket() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return taken_;
}

bool Stream::IsOver(uint64_t ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return finished_ >= ticket;
}

std::shared_ptr<Driver> Stream::NextDriver() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return drivers_.empty() ? nullptr : drivers_.front().lock();
}

Result Stream::AwaitTicket(uint64_t ticket) {
  for (auto pause = kLookAgain; !IsOver(ticket); pause = std::min(2 * pause, kLookAgainAtLast)) {
    if (const std::shared_ptr<Driver> driver = NextDriver(); driver != nullptr) {
      if (driver->inherited()) {
        return Fail(ncclInvalidUsage,
                    "what is under way on the stream belongs to the process that this one was forked from");
      }
      if (driver->TryDrive([&] { return IsOver(ticket); }) && IsOver(ticket)) break;
    }
    WaitUntilOver(ticket, pause);
  }
  return Ok();
}

void Stream::CallWhenOver(uint64_t ticket, std::function<void()> over) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (finished_ < ticket) {
      waiting_.emplace_back(ticket, std::move(over));
      return;
    }
  }
  over();
}

void Stream::WaitFor(const std::shared_ptr<Stream>& other, uint64_t ticket) {
  if (other.get() == this || other->IsOver(ticket)) return;
  const uint64_t own = TakeTicket({});
  other->CallWhenOver(ticket, [self = shared_from_this(), own] { self->Finish(own, Ok()); });
}

}  // namespace c4::host
