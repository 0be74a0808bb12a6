// The thread `c4-net`, which does for connections what nobody else does while NCCL calls nothing: signs of
// life, fail-over and fences, streams that come late, lost carriers, corrections of paths. It sleeps on the
// descriptors of all comms that NCCL does not drive itself, and looks at each of them once a second; those
// that NCCL drives it leaves alone.
//
// Any thread. Comms are shared with the thread, which may hold one for a moment after it was removed; gates
// as well. Lock order: a gate's before a receive comm's; the service's own is held for moments only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/base/socket.h"
#include "ccl/base/thread.h"
#include "ccl/pathsel/pathsel.h"
#include "ccl/plugins/net/comm.h"
#include "ccl/plugins/net/gate.h"
#include "ccl/transport/backend.h"

namespace c4::net {

class Service {
 public:
  // `each_second` runs on the thread.
  explicit Service(std::function<void(uint64_t now_ns)> each_second) : each_second_(std::move(each_second)) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() { Stop(); }

  Result Start();
  void Stop();
  int wake_fd() const { return wake_.get(); }  // an eventfd that ends its sleep
  // nullptr: nobody selects paths.
  PathSelector* selector() const { return selector_; }
  const Backends& backends() const { return backends_; }
  uint32_t takes() const { return own_.takes; }

  void Add(std::shared_ptr<Comm> comm);
  std::shared_ptr<Comm> Remove(const Comm* comm);
  void Add(std::shared_ptr<Gate> gate);

  // Times that the thread has woken; for tests.
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }

 private:
  struct Watched {
    std::shared_ptr<Comm> comm;
    uint64_t due_ns = 0;
    size_t polls = 0;  // of it, among those of all
  };

  void Run();
  void TakeChanges();
  uint64_t LookAtComms(uint64_t now_ns, bool news);
  void CollectPolls();
  void Sleep(int ms);
  void Wake();

  const std::function<void(uint64_t)> each_second_;
  Thread thread_;
  Fd wake_;
  PathSelector* selector_ = nullptr;
  Backends backends_;
  Contact own_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> turns_{0};

  std::mutex mutex_;
  bool changed_ = false;
  std::vector<std::shared_ptr<Comm>> comms_;
  std::vector<std::shared_ptr<Gate>> gates_;

  // The thread's own.
  std::vector<Watched> watched_;
  std::vector<std::shared_ptr<Gate>> watched_gates_;
  std::vector<pollfd> polls_;
};

}  // namespace c4::net
