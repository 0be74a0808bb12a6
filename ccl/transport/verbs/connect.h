// The backend over RDMA (docs/decisions/0009-backends-behind-one-seam.md): hellos over TCP, chunks over RC
// queue pairs, fences over TCP. It takes memory of the host, and of GPUs where devices can register it. See
// backend.h for threads and ownership.
#pragma once

#include <memory>
#include <vector>

#include "ccl/transport/backend.h"
#include "ccl/transport/verbs/ports.h"

namespace c4::verbs {

class VerbsBackend final : public Backend {
 public:
  wire::TransportKind kind() const override { return wire::kTransportVerbs; }
  const char* name() const override { return "RDMA"; }
  DeviceMemoryWays device_memory() const override;
  uint16_t protocol() const override { return IPPROTO_UDP; }
  // Not Ok without libibverbs, device, port or GID, or with NCCL_IB_DISABLE=1.
  Result Listen(Contact* own) override;
  bool Reaches(const Contact& peer) override { return (peer.takes & 1u << wire::kTransportVerbs) != 0; }
  Result Dial(const Recording& recording, const Contact& peer, const std::vector<QpPath>& paths,
              const Shape& shape, std::unique_ptr<SendConnection>* connection) override;
  Result Accept(std::vector<Accepted> accepted, const Recording& recording,
                ReceiveConnection* connection) override;
  Result Register(const Buffer& buffer, size_t bytes, int dma_buf, uint64_t dma_buf_offset,
                  std::unique_ptr<c4::Registration>* registration) override;

  void AppendDevicePolls(std::vector<pollfd>* polls) const override;
  const pollfd* TakeDevicePolls(const pollfd* polls) override;
  void TakeLost(std::vector<SocketAddress>* lost) override;

 private:
  std::unique_ptr<Ports> ports_;  // outlives the connections
  std::vector<bool> up_;          // by port, as it was last told
  bool news_ = false;
};

}  // namespace c4::verbs
