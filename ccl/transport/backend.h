// What stands between connections and a kind of network: shm, verbs, tcp. Whoever has peers (the host
// engine's links, the net plugin) holds Backends and names none of them.
//
// Every backend is reached through the same door: the rank's listener, whose acceptor reads hellos
// (acceptor.h). A hello says of which backend it is, and brings what that needs in its tail; where its sender
// waits for an answer (hello.h), the backend that accepts gives it. What a rank takes stands in its contact,
// which peers have before they dial.
//
// Dial, Accept and Register may be called by several threads at a time where connections have different
// threads (the net plugin); the rest belongs to the thread that waits for the network. Nothing blocks. A
// backend outlives its connections and registrations.
#pragma once

#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <vector>

#include "ccl/transport/acceptor.h"
#include "ccl/transport/buffer.h"
#include "ccl/transport/connection.h"

namespace c4 {

class Shelf;

// How a rank is reached, as the bootstrap or a handle tells its peers.
struct Contact {
  int rank = 0;
  std::vector<SocketAddress> listeners;  // by plane; one port
  wire::ProcessIdentity process{};
  uint64_t host_hash = 0;  // equal on ranks that can share memory; 0: shares none
  uint32_t bell = 0;       // of shm: the descriptor of its page, plus 1; 0: takes no shared memory
  // Bits 1 << wire::TransportKind of what it takes over its listener beside TCP and, with a bell, shared
  // memory.
  uint32_t takes = 0;
};

// Size and number of queue pairs and chunks, from the knobs, for backends over a network.
struct Shape {
  uint32_t queue_pairs = 1;
  uint32_t chunk_bytes = 131072;
  size_t window_bytes = 524288;  // in flight on a queue pair
  bool fails_over = false;
  uint64_t give_up_ns = 0;  // without any path while there is something to do; 0: as the knob says
};
Shape KnobShape();

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual wire::TransportKind kind() const = 0;
  virtual const char* name() const = 0;  // "tcp"

  // Makes ready to be dialled, and to dial, and puts into *own what peers have to know. Not Ok: why it
  // cannot, and then it is left out; not a fault.
  virtual Result Listen(Contact* own) = 0;
  // Who the peers are, this rank among them, once all have listened. Not called by the net plugin, whose
  // peers come one by one.
  virtual void Know(const Contact& /*own*/, const std::vector<Contact>& /*peers*/) {}
  virtual bool Reaches(const Contact& peer) = 0;

  // A switch chooses among paths for its queue pairs, so that somebody may be asked which: then Dial takes
  // one for each.
  virtual bool has_paths() const { return true; }
  // What switches see of them. Where that is UDP, the addresses are those of devices, which contacts do not
  // tell: paths given to Dial say where the peer's door is, and which paths there are to choose among is
  // asked once the queue pairs are connected.
  virtual uint16_t protocol() const { return IPPROTO_TCP; }
  // Begins to connect, and returns: what fails later fails the connection. `paths`: by queue pair.
  virtual Result Dial(const Recording& recording, const Contact& peer, const std::vector<QpPath>& paths,
                      const Shape& shape, std::unique_ptr<SendConnection>* connection) = 0;
  // The receiver's end of a connection of which all hellos have come, by queue pair. Answers them where they
  // are to be answered.
  virtual Result Accept(std::vector<Accepted> accepted, const Recording& recording,
                        ReceiveConnection* connection) = 0;

  // How memory of a GPU can be registered, once it listens; by no way where messages are host memory.
  virtual DeviceMemoryWays device_memory() const { return {}; }
  // Whether messages may come from and go to such memory.
  bool takes(MemoryKind kind) const {
    return kind == MemoryKind::kHost || device_memory().by_address || device_memory().by_dma_buf;
  }
  // Makes memory known to its devices, once for all messages that use it; null in *registration where nothing
  // is needed. `dma_buf`: a descriptor of it, which stays the caller's, and where in it the memory begins;
  // -1: none.
  virtual Result Register(const Buffer& buffer, size_t bytes, int dma_buf, uint64_t dma_buf_offset,
                          std::unique_ptr<Registration>* registration) {
    (void)bytes, (void)dma_buf, (void)dma_buf_offset;
    registration->reset();
    if (takes(buffer.kind)) return Ok();
    return Fail(ncclInvalidArgument, "the %s transport takes host memory only", name());
  }

  // For the one thread that waits for the network. What tells of devices: descriptors, what poll() said of
  // them (returns what comes behind), and the addresses that have gone down since the last call.
  virtual void AppendDevicePolls(std::vector<pollfd>* /*polls*/) const {}
  virtual const pollfd* TakeDevicePolls(const pollfd* polls) { return polls; }
  virtual void TakeLost(std::vector<SocketAddress>* /*lost*/) {}

  // Peers answer within microseconds: what comes from them makes no descriptor of a connection readable, and
  // it is worth looking for a while before sleeping: so long.
  virtual bool is_near() const { return false; }
  virtual uint64_t spin_ns() const { return 0; }
  // Of a near one, around a sleep: from BeforeSleep on what comes wakes, by its own descriptors; what came
  // before is to be looked for once more.
  virtual void BeforeSleep() {}
  virtual void AfterSleep() {}
  virtual void AppendWakePolls(std::vector<pollfd>* /*polls*/) const {}
  virtual const pollfd* TakeWakePolls(const pollfd* polls) { return polls; }
  // Peers that sleep and have something to do are woken here at the latest.
  virtual void WakePeers() {}
  // Where messages to several neighbours are written once; null: nowhere.
  virtual Shelf* shelf() { return nullptr; }
};

// Those that a process uses, in the order in which they are tried: the nearest first, tcp last. The list
// stands still after Listen.
class Backends {
 public:
  Backends() = default;
  explicit Backends(std::vector<std::unique_ptr<Backend>> tried) : all_(std::move(tried)) {}

  // Of what this version has, those that knobs allow. `neighbours`: ranks of this host may share memory.
  static Backends Make(bool neighbours);

  // Leaves out who cannot, with one line at NCCL_DEBUG=INFO. `own` says who this rank is.
  void Listen(Contact* own);
  void Know(const Contact& own, const std::vector<Contact>& peers);
  // What hellos may ask for.
  void TellAcceptor(Acceptor* acceptor) const;
  // Who dials that peer. There is one: tcp reaches everybody.
  Backend* To(const Contact& peer) const;
  // Who accepts that hello; null: nobody.
  Backend* Of(const Hello& hello) const;
  // Of the nearest one: who reaches a peer only by another has to bring host memory.
  DeviceMemoryWays device_memory() const;

  const std::vector<std::unique_ptr<Backend>>& all() const { return all_; }
  void AppendDevicePolls(std::vector<pollfd>* polls) const;
  const pollfd* TakeDevicePolls(const pollfd* polls) const;
  std::vector<SocketAddress> TakeLost() const;

 private:
  std::vector<std::unique_ptr<Backend>> all_;
};

}  // namespace c4
