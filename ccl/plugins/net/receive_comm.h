// The receiving end, made when its connection has come whole. See comm.h for the rules.
#pragma once

#include <vector>

#include "ccl/plugins/net/comm.h"
#include "ccl/plugins/net/gate.h"
#include "ccl/transport/tcp/connect.h"

namespace c4::net {

class ReceiveComm final : public Comm {
 public:
  // `gate`: where it came in, and what is late will.
  ReceiveComm(const Identity& identity, std::shared_ptr<Gate> gate, const tcp::ConnectionKey& key,
              std::vector<tcp::Accepted> queue_pairs);

  // Nothing comes late any more. Without the comm's lock.
  void LeaveGate() { gate_->Leave(key_); }
  ncclResult_t Receive(int count, void** data, const size_t* bytes, const int* tags, void** request);
  // A stream of its connection that has come since.
  void TakeLate(tcp::Accepted late);

 private:
  Result Progress(bool* moved) override { return connection_->Progress(moved); }
  uint64_t completed() const override { return connection_->completed(); }
  bool watchful() const override { return connection_->watchful(); }
  void AppendDataPolls(std::vector<pollfd>* polls) const override { connection_->AppendDataPolls(polls); }
  void AppendControlPolls(std::vector<pollfd>* polls) const override {
    connection_->AppendControlPolls(polls);
  }
  void Leave() override;

  const std::shared_ptr<Gate> gate_;
  const tcp::ConnectionKey key_;
  std::unique_ptr<ReceiveConnection> connection_;
  tcp::TcpReceiveControl* control_ = nullptr;  // the connection's
};

}  // namespace c4::net
