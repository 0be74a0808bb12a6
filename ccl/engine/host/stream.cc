#include "ccl/engine/host/stream.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "ccl/base/caught.h"

namespace c4::host {
namespace {

// How long a thread that waits sleeps before it looks again whether it could run something itself: longer and
// longer, as somebody else is at it. The end of what it waits for wakes it.
constexpr auto kLookAgain = std::chrono::milliseconds(1);
constexpr auto kLookAgainAtLast = std::chrono::milliseconds(32);

}  // namespace

uint64_t Stream::TakeTicket(std::weak_ptr<Driver> driver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (early_.capacity() <= drivers_.size()) early_.reserve(2 * drivers_.size() + 1);
  drivers_.push_back(std::move(driver));
  return ++taken_;
}

bool Stream::IsTurn(uint64_t ticket) {
  return finished_ + 1 >= ticket;
}

bool Stream::WaitForTurn(uint64_t ticket, int ms) {
  return WaitUntilOver(ticket - 1, std::chrono::milliseconds(ms));
}

bool Stream::WaitUntilOver(uint64_t ticket, std::chrono::milliseconds limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (finished_ >= ticket) return true;
  Sleeper self{ticket, sleepers_};
  sleepers_ = &self;
  const bool over = changed_.wait_for(lock, limit, [&] { return finished_ >= ticket; });
  Sleeper** link = &sleepers_;
  while (*link != &self) link = &(*link)->next;
  *link = self.next;
  return over;
}

void Stream::Advance() {
  for (auto next = early_.end();; early_.erase(next)) {
    ++finished_;
    drivers_.pop_front();
    next = std::find(early_.begin(), early_.end(), finished_ + 1);
    if (next == early_.end()) return;
  }
}

void Stream::Finish(uint64_t ticket, const Result& result) {
  std::list<std::pair<uint64_t, std::function<void()>>> over;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!result.ok() && failure_.ok()) {
      failure_ = result;
      failed_.store(true);
    }
    if (ticket == finished_ + 1) {
      Advance();
    } else {
      early_.push_back(ticket);
    }
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const auto next = std::next(it);
      if (it->first <= finished_) over.splice(over.end(), waiting_, it);
      it = next;
    }
    for (const Sleeper* sleeper = sleepers_; sleeper != nullptr; sleeper = sleeper->next) {
      if (sleeper->ticket > finished_) continue;
      changed_.notify_all();
      break;
    }
  }
  for (const auto& [is_over, call] : over) call();
}

Result Stream::Synchronize() {
  C4_RETURN_IF_ERROR(AwaitTicket(LastTicket()));
  if (!failed_.load()) return Ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_.store(false);
  return std::exchange(failure_, Ok());
}

uint64_t Stream::LastTicket() {
  return taken_;
}

bool Stream::IsOver(uint64_t ticket) {
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

Result Stream::WaitFor(const std::shared_ptr<Stream>& other, uint64_t ticket) {
  if (other.get() == this || other->IsOver(ticket)) return Ok();
  const uint64_t own = TakeTicket({});
  Result waits = Caught([&] {
    other->CallWhenOver(ticket, [self = shared_from_this(), own] { self->Finish(own, Ok()); });
    return Ok();
  });
  // What comes later on this stream must not wait for ever.
  if (!waits.ok()) Finish(own, waits);
  return waits;
}

}  // namespace c4::host
