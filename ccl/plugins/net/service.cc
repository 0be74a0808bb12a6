#include "ccl/plugins/net/service.h"

#include <algorithm>
#include <cerrno>
#include <dlfcn.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/knobs.h"

namespace c4::net {
namespace {

constexpr uint64_t kSecondNs = 1000000000;
// Turns that come sooner after one another are a storm of small news: they can wait for each other.
constexpr uint64_t kTurnNs = 1000000;
constexpr int kStarvedPauseMs = 100;

// Whoever unloads the library while the thread runs would take its code away.
void StayLoaded() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&StayLoaded), &info) == 0) return;
  void* const self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  if (self != nullptr) dlclose(self);
}

}  // namespace

Result Service::Start() {
  StayLoaded();
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Fail(ncclSystemError, "cannot make an eventfd: %s", ErrnoText(errno).c_str());
  selector_ = PathSelector::ForProcess();
  // Whom peers reach by a handle shares no memory with them, as far as is known.
  backends_ = Backends::Make(false);
  own_ = Contact();
  backends_.Listen(&own_);
  stop_.store(false);
  return thread_.Start("c4-net", [this] {
    // Connections fail for want of memory one by one; those that have enough are still looked after.
    while (!stop_.load() && !Caught([this] { return Run(), Ok(); }).ok()) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        changed_ = true;
      }
      pollfd wake{wake_.get(), POLLIN, 0};
      (void)poll(&wake, 1, kStarvedPauseMs);
    }
  });
}

void Service::Stop() {
  stop_.store(true);
  Wake();
  thread_.Join();
}

void Service::Wake() {
  if (!wake_.valid()) return;
  const uint64_t one = 1;
  const ssize_t ignored = write(wake_.get(), &one, sizeof one);
  (void)ignored;
}

void Service::Add(std::shared_ptr<Comm> comm) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    comms_.push_back(std::move(comm));
    changed_ = true;
  }
  Wake();
}

std::shared_ptr<Comm> Service::Remove(const Comm* comm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found =
      std::find_if(comms_.begin(), comms_.end(), [comm](const auto& entry) { return entry.get() == comm; });
  if (found == comms_.end()) return nullptr;
  std::shared_ptr<Comm> removed = std::move(*found);
  comms_.erase(found);
  changed_ = true;
  return removed;
}

void Service::Add(std::shared_ptr<Gate> gate) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    gates_.push_back(std::move(gate));
    changed_ = true;
  }
  Wake();
}

void Service::TakeChanges() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!std::exchange(changed_, false)) return;
  std::vector<Watched> before = std::exchange(watched_, {});
  for (const auto& comm : comms_) {
    const auto known = std::find_if(before.begin(), before.end(),
                                    [&](const Watched& watched) { return watched.comm == comm; });
    watched_.push_back({comm, known == before.end() ? 0 : known->due_ns, 0});
  }
  watched_gates_ = gates_;
}

uint64_t Service::LookAtComms(uint64_t now_ns, bool news) {
  uint64_t due_ns = now_ns + kSecondNs;
  for (Watched& watched : watched_) {
    if (news || now_ns >= watched.due_ns) watched.due_ns = watched.comm->Look(now_ns, news);
    due_ns = std::min(due_ns, watched.due_ns);
  }
  return due_ns;
}

void Service::CollectPolls() {
  polls_.clear();
  polls_.push_back({wake_.get(), POLLIN, 0});
  backends_.AppendDevicePolls(&polls_);
  for (const auto& gate : watched_gates_) gate->AppendPolls(&polls_);
  for (Watched& watched : watched_) {
    const size_t before = polls_.size();
    watched.comm->AppendPolls(&polls_);
    watched.polls = polls_.size() - before;
  }
}

void Service::Sleep(int ms) {
  CollectPolls();
  if (poll(polls_.data(), polls_.size(), ms) < 0) return;
  if (polls_.front().revents != 0) {
    uint64_t count = 0;
    const ssize_t ignored = read(wake_.get(), &count, sizeof count);
    (void)ignored;
  }
  (void)backends_.TakeDevicePolls(polls_.data() + 1);
  size_t at = polls_.size();
  for (auto watched = watched_.rbegin(); watched != watched_.rend(); ++watched) {
    for (size_t i = 0; i < watched->polls; ++i) {
      if (polls_[--at].revents != 0) watched->due_ns = 0;
    }
  }
}

void Service::Run() {
  uint64_t second_ns = 0;
  uint64_t path_news = 0;
  while (!stop_.load()) {
    const uint64_t began_ns = MonotonicNs();
    turns_.fetch_add(1, std::memory_order_relaxed);
    TakeChanges();
    for (const auto& gate : watched_gates_) gate->Look();
    for (const SocketAddress& address : backends_.TakeLost()) {
      for (Watched& watched : watched_) {
        watched.comm->LoseAddress(address);
        watched.due_ns = 0;
      }
    }
    const uint64_t news = selector_ != nullptr ? selector_->news() : 0;
    const uint64_t due_ns = LookAtComms(began_ns, std::exchange(path_news, news) != news);
    if (began_ns >= second_ns) {
      second_ns = began_ns + kSecondNs;
      each_second_(began_ns);
    }
    const uint64_t now_ns = MonotonicNs();
    Sleep(due_ns <= now_ns ? 0 : static_cast<int>((due_ns - now_ns) / 1000000 + 1));
    pollfd wake{wake_.get(), POLLIN, 0};
    if (MonotonicNs() < began_ns + kTurnNs && !stop_.load()) (void)poll(&wake, 1, 1);
  }
  watched_.clear();
  watched_gates_.clear();
}

}  // namespace c4::net
