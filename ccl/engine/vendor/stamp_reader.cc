#include "ccl/engine/vendor/stamp_reader.h"

#include <algorithm>
#include <chrono>

#include "ccl/base/caught.h"
#include "ccl/base/thread.h"
#include "ccl/engine/vendor/stamps.h"

namespace c4::vendor {
namespace {

constexpr std::chrono::microseconds kBusyPoll{100};
constexpr std::chrono::microseconds kGraphPoll{1000};
constexpr std::chrono::microseconds kIdlePoll{50'000};

}  // namespace

StampReader& StampReader::Get() {
  static auto* const reader = new StampReader;
  return *reader;
}

Result StampReader::Add(Stamps* stamps) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!running_) {
    Thread thread;
    C4_RETURN_IF_ERROR(thread.Start("c4-stamps", [this] { Run(); }));
    thread.Detach();
    running_ = true;
  }
  all_.push_back(stamps);
  return Ok();
}

void StampReader::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    auto more = Stamps::More::kWhenAsked;
    for (size_t i = 0; i < all_.size(); ++i) {
      Stamps* const stamps = all_[i];
      lock.unlock();
      (void)Caught([&] {
        more = std::max(more, stamps->Poll());
        return Ok();
      });
      lock.lock();
    }
    // A wake-up that comes before the waiting is missed, which costs one late reading.
    idle_.store(more != Stamps::More::kSoon, std::memory_order_relaxed);
    wanted_.wait_for(lock, more == Stamps::More::kSoon      ? kBusyPoll
                           : more == Stamps::More::kAnyTime ? kGraphPoll
                                                            : kIdlePoll);
    idle_.store(false, std::memory_order_relaxed);
  }
}

}  // namespace c4::vendor
