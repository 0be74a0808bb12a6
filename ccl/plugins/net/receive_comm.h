// The receiving end, made when its connection has come whole. See comm.h for the rules.
#pragma once

#include <vector>

#include "ccl/plugins/net/comm.h"
#include "ccl/plugins/net/gate.h"
#include "ccl/transport/backend.h"

namespace c4::net {

class ReceiveComm final : public Comm {
 public:
  // `gate`: where it came in, and what is late will.
  ReceiveComm(const Identity& identity, std::shared_ptr<Gate> gate, const ConnectionKey& key);

  // Its queue pairs, once, before anything else.
  Result Attach(Backend* backend, std::vector<Accepted> queue_pairs);
  // Nothing comes late any more. Without the comm's lock.
  void LeaveGate() { gate_->Leave(key_); }
  ncclResult_t Receive(int count, const Buffer* to, const size_t* bytes, const int* tags, void** request);
  // Of what has come into these; *request null: nothing is to be done.
  ncclResult_t Flush(int count, const Buffer* buffers, void** request);
  Backend* backend() const override { return backend_; }
  // A stream of its connection that has come since.
  void TakeLate(Accepted late);

 private:
  Result Progress(bool* moved) override { return connection_->Progress(moved); }
  uint64_t completed() const override { return connection_->completed(); }
  uint64_t flushed() const override { return connection_->flushed(); }
  bool watchful() const override { return connection_->watchful(); }
  void AppendDataPolls(std::vector<pollfd>* polls) const override { connection_->AppendDataPolls(polls); }
  void TakeDataPolls(const pollfd* polls) override { (void)connection_->TakeDataPolls(polls); }
  void AppendFencePolls(std::vector<pollfd>* polls) const override { connection_->AppendFencePolls(polls); }
  void Leave() override;

  const std::shared_ptr<Gate> gate_;
  const ConnectionKey key_;
  std::unique_ptr<ReceiveConnection> connection_;
  Backend* backend_ = nullptr;
};

}  // namespace c4::net
