// The sending end. It asks which paths to take, connects over them when the answer has come or is late, and
// is the caller's when the connection stands; nobody waits in between. See comm.h for the rules.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "ccl/plugins/net/comm.h"
#include "ccl/plugins/net/handle.h"
#include "ccl/transport/backend.h"
#include "ccl/transport/selected_paths.h"

namespace c4::net {

class SendComm final : public Comm {
 public:
  // `own`: addresses to connect from, by plane. `bind`: also when there is only one. `selector`: null where
  // nobody selects paths; it raises `wake_fd` for corrections. All that it is given pointers to outlives the
  // comm.
  SendComm(const Identity& identity, uint16_t channel, const ListenerInfo& listener, const Backends& backends,
           std::vector<SocketAddress> own, bool bind, PathSelector* selector, int wake_fd);

  // What can be done now; *ready: it can be handed to the caller.
  ncclResult_t Connect(bool* ready);
  ncclResult_t Send(const Buffer& from, size_t bytes, int tag, void** request);

  Backend* backend() const override { return backend_; }
  void LoseAddress(const SocketAddress& address) override;
  bool abandoned(uint64_t now_ns) override;

 private:
  Result Progress(bool* moved) override;
  uint64_t completed() const override { return connection_->completed(); }
  bool watchful() const override { return connection_ == nullptr || connection_->watchful(); }
  void AppendDataPolls(std::vector<pollfd>* polls) const override;
  void TakeDataPolls(const pollfd* polls) override { (void)connection_->TakeDataPolls(polls); }
  void AppendFencePolls(std::vector<pollfd>* polls) const override;
  void LookAtPaths(bool news) override;
  void Leave() override;

  // Sends for which no receive is posted yet, oldest first.
  struct Waiting {
    Request* request;
    Buffer from;
    int tag;
  };

  bool Match();  // whether any was posted

  std::deque<Waiting> waiting_;
  Contact contact_;
  Backend* const backend_;
  std::vector<QpPath> paths_;
  SelectedPaths selected_;
  std::unique_ptr<SendConnection> connection_;  // null until there is advice
  bool handed_over_ = false;
  uint64_t asked_for_ns_;
};

}  // namespace c4::net
