// Transfers between testers: some TCP streams at once, for a set time. The rate is what the other end has
// acknowledged by then, so that nothing is waited for that still lies in a queue, and a transfer over a slow
// link lasts no longer than one over a fast one.
//
// A Receiver takes what others send and throws it away; it owns a thread. Send blocks, and may be called by
// any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "c4a/tester/protocol.h"
#include "service/status.h"

namespace c4::tester {

class Receiver {
 public:
  Receiver() = default;
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // On all addresses, of both families where there are both; a port of the kernel's choice.
  absl::Status Start();
  uint16_t port() const { return port_; }

 private:
  void Run();

  int listener_ = -1;
  int wake_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// `order.ms` bounds all of it, connecting too. A fault is a sentence in the answer.
TransferFigures SendTransfer(const TransferOrder& order);

}  // namespace c4::tester
