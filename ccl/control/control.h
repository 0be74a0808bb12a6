// The library's one client of the node's agent (wire/control.h): says hello, takes the recording level, and
// carries what others in the library have to say to the agent and hear from it.
//
// Owns one thread, `c4-control`, which connects, waits for frames and connects again for ever when the agent
// goes away. Nothing in the job ever waits for it: without an agent there is one warning, and the job runs.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "ccl/base/socket.h"
#include "ccl/base/thread.h"
#include "ccl/monitor/monitor.h"
#include "wire/control.h"

namespace c4 {

// Who else listens. Called on the client's thread; must be quick, and may call Send.
class ControlListener {
 public:
  // A connection is up, the first or another one: the agent may know nothing of this process.
  virtual void Connected() = 0;
  // The agent cannot be reached, or not any more.
  virtual void Alone() = 0;
  virtual void Answered(const wire::ControlPathAnswer& answer) = 0;

 protected:
  ~ControlListener() = default;
};

class ControlClient {
 public:
  // `monitor` outlives the client.
  explicit ControlClient(Monitor* monitor) : monitor_(monitor) {}
  ~ControlClient();  // stops

  // `listener` outlives the client; nullptr: nobody listens.
  Result Start(ControlListener* listener = nullptr);
  void Stop();
  // Any thread. False when there is no agent, or it does not read.
  template <typename Body>
  bool Send(wire::ControlType type, const Body& body) {
    const wire::ControlPacket<Body> packet = wire::MakeControlPacket(type, writer(), body);
    return SendPacket(&packet, sizeof packet);
  }
  bool connected() const { return connected_.load(std::memory_order_acquire); }
  uint64_t connections() const { return connections_.load(std::memory_order_acquire); }

 private:
  void Run();
  bool Connect(Fd* fd);
  void Serve(int fd);
  void HandlePacket(const char* packet, size_t bytes);
  void TellOfPlans();
  const wire::ProcessIdentity& writer() const { return monitor_->segment().header().header.writer; }
  bool SendPacket(const void* packet, size_t bytes);
  void SetSending(int fd);

  Monitor* monitor_;
  ControlListener* listener_ = nullptr;
  std::mutex sending_;
  int send_fd_ = -1;  // of the connection that is up
  Thread thread_;
  Fd wake_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> connected_{false};
  std::atomic<uint64_t> connections_{0};
};

}  // namespace c4
