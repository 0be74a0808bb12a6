// The library's one client of the node's agent (wire/control.h): says hello, takes the recording level.
//
// Owns one thread, `c4-control`, which connects, waits for frames and connects again for ever when the agent
// goes away. Nothing in the job ever waits for it: without an agent there is one warning, and the job runs.
#pragma once

#include <atomic>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/base/thread.h"
#include "ccl/monitor/monitor.h"

namespace c4 {

class ControlClient {
 public:
  // `monitor` outlives the client.
  explicit ControlClient(Monitor* monitor) : monitor_(monitor) {}
  ~ControlClient();  // stops

  Result Start();
  void Stop();
  bool connected() const { return connected_.load(std::memory_order_acquire); }
  uint64_t connections() const { return connections_.load(std::memory_order_acquire); }

  // The process's own client over the process's own monitor; starts it at the first call unless
  // C4_CONTROL=0 or nothing is recorded.
  static void StartForProcess();

 private:
  void Run();
  bool Connect(Fd* fd);
  void Serve(int fd);
  void HandlePacket(const char* packet, size_t bytes);

  Monitor* monitor_;
  Thread thread_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> connected_{false};
  std::atomic<uint64_t> connections_{0};
};

}  // namespace c4
