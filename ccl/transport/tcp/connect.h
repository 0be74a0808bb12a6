// The backend over TCP. The sender's side of a connection: N queue pairs towards the receiver's listener,
// each with a hello. Returns at once; the streams connect and say hello as the connection progresses, and
// what fails then fails the connection. See backend.h for threads and ownership.
#pragma once

#include <memory>
#include <vector>

#include "ccl/transport/backend.h"
#include "ccl/transport/carrier.h"

namespace c4::tcp {

// A queue pair for each path, by index; `shape.queue_pairs` says how many without paths of their own.
Result ConnectSender(const Recording& recording, const std::vector<QpPath>& paths, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);
Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);

// The receiver's side: the queue pairs that an acceptor has taken in, by index, and their fence channel,
// where the sender has one.
void AttachReceiver(std::vector<Accepted> accepted, const Recording& recording,
                    ReceiveConnection* connection);

class TcpBackend final : public Backend {
 public:
  wire::TransportKind kind() const override { return wire::kTransportTcp; }
  const char* name() const override { return "tcp"; }
  Result Listen(Contact* own) override;
  bool Reaches(const Contact& /*peer*/) override { return true; }
  Result Dial(const Recording& recording, const Contact& /*peer*/, const std::vector<QpPath>& paths,
              const Shape& shape, std::unique_ptr<SendConnection>* connection) override {
    return ConnectSender(recording, paths, shape, connection);
  }
  Result Accept(std::vector<Accepted> accepted, const Recording& recording,
                ReceiveConnection* connection) override {
    AttachReceiver(std::move(accepted), recording, connection);
    return Ok();
  }
  void AppendDevicePolls(std::vector<pollfd>* polls) const override;
  const pollfd* TakeDevicePolls(const pollfd* polls) override;
  void TakeLost(std::vector<SocketAddress>* lost) override;

 private:
  Carrier carrier_;
  bool carrier_news_ = false;
};

}  // namespace c4::tcp
