// The backend between ranks of one host. The sender makes the region and connects as over TCP; its hello
// offers the region, which the receiver opens through /proc. Whether two ranks can do so is the sender's to
// find out, by opening the receiver's bell: no agreement is needed beyond the hello.
//
// ConnectSender returns at once, as over TCP; Accept takes an offer or says what is wrong with it. One
// thread, unlike other backends: its peers are the ranks of one communicator.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "ccl/transport/backend.h"
#include "ccl/transport/shm/bell.h"
#include "ccl/transport/shm/queue_pair.h"

namespace c4::shm {

struct Shape {
  uint32_t chunk_bytes = 524288;
  size_t window_bytes = 8388608;
  Geometry geometry = OwnGeometry();
};

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener,
                     std::shared_ptr<PeerBell> bell, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection);

// How large chunks are to be copied: as C4_SHM_COPY says, or kCopyUnknown for what works.
Copy KnobCopy();

// The receiver's end of what `accepted` offers. `bell` is the sender's.
Result Accept(Accepted accepted, std::shared_ptr<PeerBell> bell, Copy copy, const Recording& recording,
              std::unique_ptr<ReceiveQueuePair>* queue_pair);

class ShmBackend final : public Backend {
 public:
  wire::TransportKind kind() const override { return wire::kTransportShm; }
  const char* name() const override { return "shared memory"; }
  bool has_paths() const override { return false; }
  // For the process that `own` names.
  Result Listen(Contact* own) override;
  void Know(const Contact& own, const std::vector<Contact>& peers) override;
  bool Reaches(const Contact& peer) override { return BellOf(peer.rank) != nullptr; }
  Result Dial(const Recording& recording, const Contact& peer, const std::vector<QpPath>& paths,
              const c4::Shape& shape, std::unique_ptr<SendConnection>* connection) override;
  Result Accept(std::vector<Accepted> accepted, const Recording& recording,
                ReceiveConnection* connection) override;

  bool is_near() const override { return true; }
  uint64_t spin_ns() const override { return spin_ns_; }
  void BeforeSleep() override { bell_.BeforeSleep(); }
  void AfterSleep() override { bell_.AfterSleep(); }
  void AppendWakePolls(std::vector<pollfd>* polls) const override;
  const pollfd* TakeWakePolls(const pollfd* polls) override;
  void WakePeers() override;
  Shelf* shelf() override { return bell_.shelf(); }

 private:
  // A rank of this host that takes shared memory.
  struct Neighbour {
    wire::ProcessIdentity process{};
    uint32_t bell_descriptor = 0;
    std::shared_ptr<PeerBell> bell;
  };

  // Of a neighbour; null when it is none, or cannot be reached.
  std::shared_ptr<PeerBell> BellOf(int peer);

  Bell bell_;  // outlives the connections, which share messages on its shelf
  int rank_ = 0;
  std::map<int, Neighbour> neighbours_;
  bool crowded_ = false;  // more ranks on this host than processors
  uint64_t spin_ns_ = 0;
};

}  // namespace c4::shm
