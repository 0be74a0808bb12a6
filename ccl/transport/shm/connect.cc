#include "ccl/transport/shm/connect.h"

#include <cstring>
#include <sched.h>
#include <utility>
#include <vector>

#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/transport/stream.h"

namespace c4::shm {
namespace {

constexpr int64_t kSpinUs = 50;

bool IsCrowded(size_t ranks) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) != 0 || ranks > static_cast<size_t>(CPU_COUNT(&set));
}

// How long to look before sleeping. Who spins on a processor that another rank waits for delays what it waits
// for itself.
uint64_t SpinNs(bool crowded) {
  const int64_t us = KnobNumber(Knob::C4_SPIN_US);
  return static_cast<uint64_t>(us >= 0 ? us : crowded ? 0 : kSpinUs) * 1000;
}

}  // namespace

Result ConnectSender(const Recording& recording, const SocketAddress& peer_listener,
                     std::shared_ptr<PeerBell> bell, const Shape& shape,
                     std::unique_ptr<SendConnection>* connection) {
  uint8_t cookie[16];
  if (!FillRandom(cookie, sizeof cookie)) {
    return Fail(ncclSystemError, "the kernel gave no random bytes");
  }
  Fd file;
  Memory memory;
  memory.geometry = shape.geometry;
  C4_RETURN_IF_ERROR(MakeMemory("c4-ring", memory.geometry.total_bytes, &file, &memory.mapping));
  Fd fd;
  C4_RETURN_IF_ERROR(StartConnect(peer_listener, &fd));
  const Hello hello = MakeHello(recording, 0, 1, shape.chunk_bytes);
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
  queue_pairs.push_back(std::make_unique<ShmSendQueuePair>(std::move(fd), peer_listener, hello,
                                                           std::move(memory), std::move(file), cookie,
                                                           std::move(bell), recording));
  *connection = std::make_unique<SendConnection>(recording.peer, std::move(queue_pairs), shape.chunk_bytes,
                                                 shape.window_bytes);
  return Ok();
}

Copy KnobCopy() {
  const std::string knob = KnobText(Knob::C4_SHM_COPY);
  return knob == "direct" ? kCopyDirect : knob == "pool" ? kCopyPool : kCopyUnknown;
}

Result Accept(Accepted accepted, std::shared_ptr<PeerBell> bell, Copy copy, const Recording& recording,
              std::unique_ptr<ReceiveQueuePair>* queue_pair) {
  const int peer = recording.peer;
  if (bell == nullptr) {
    return Fail(ncclRemoteError,
                "rank %d offers shared memory, but cannot be reached through /proc from rank %d: C4_SHM=0 on "
                "all ranks goes without",
                peer, recording.rank);
  }
  Offer offer;
  static_assert(sizeof offer == sizeof accepted.tail);
  memcpy(&offer, accepted.tail, sizeof offer);
  const uint32_t pid = bell->process().pid;
  Memory memory;
  const Result opened = OpenMemory(pid, offer.descriptor, sizeof(Region), &memory.mapping);
  if (!opened.ok()) {
    return Fail(ncclRemoteError,
                "rank %d offers shared memory that rank %d cannot use: %s; C4_SHM=0 on all ranks goes "
                "without",
                peer, recording.rank, opened.message().c_str());
  }
  Region region;
  memcpy(&region, static_cast<const void*>(memory.mapping.data()), sizeof region);
  const char* fault = offer.bytes == memory.mapping.bytes()
                          ? CheckRegion(region, memory.mapping.bytes(), offer.cookie, &memory.geometry)
                          : "has another length than was announced";
  if (fault != nullptr) {
    return Fail(ncclRemoteError, "the shared memory that rank %d offers %s", peer, fault);
  }
  if (copy != kCopyPool) {
    uint8_t read[sizeof offer.cookie] = {};
    const int error = Pull(pid, region.cookie_address, read, sizeof read);
    const bool works = error == 0 && memcmp(read, offer.cookie, sizeof read) == 0;
    if (!works && copy == kCopyDirect) {
      return Fail(ncclSystemError,
                  "rank %d cannot read the memory of rank %d (%s), which C4_SHM_COPY=direct demands: auto "
                  "does without",
                  recording.rank, peer, error != 0 ? ErrnoText(error).c_str() : "it is another process");
    }
    if (!works) {
      C4_INFO("rank %d cannot read the memory of rank %d (%s): large messages are copied twice",
              recording.rank, peer, error != 0 ? ErrnoText(error).c_str() : "it is another process");
    }
    copy = works ? kCopyDirect : kCopyPool;
  }
  *queue_pair = std::make_unique<ShmReceiveQueuePair>(std::move(accepted.fd), accepted.hello,
                                                      std::move(memory), copy, std::move(bell), recording);
  return Ok();
}

Result ShmBackend::Listen(Contact* own) {
  rank_ = own->rank;
  C4_RETURN_IF_ERROR(bell_.Make(own->process));
  own->bell = bell_.descriptor() + 1;
  return Ok();
}

void ShmBackend::Know(const Contact& own, const std::vector<Contact>& peers) {
  for (const Contact& peer : peers) {
    if (peer.host_hash != own.host_hash || peer.bell == 0) continue;
    neighbours_[peer.rank] = {peer.process, peer.bell - 1, nullptr};
  }
  crowded_ = IsCrowded(neighbours_.size());
  spin_ns_ = SpinNs(crowded_);
}

std::shared_ptr<PeerBell> ShmBackend::BellOf(int peer) {
  const auto found = neighbours_.find(peer);
  if (found == neighbours_.end()) return nullptr;
  Neighbour& neighbour = found->second;
  if (neighbour.bell == nullptr) {
    const Result opened = PeerBell::Open(neighbour.process, neighbour.bell_descriptor, &neighbour.bell);
    if (!opened.ok()) {
      C4_INFO("rank %d shares no memory with rank %d: %s", rank_, peer, opened.message().c_str());
      neighbours_.erase(found);
      return nullptr;
    }
    // Where ranks wait for a processor, one that is woken earlier only takes it away from this one.
    if (crowded_) neighbour.bell->TakeNotes();
  }
  return neighbour.bell;
}

Result ShmBackend::Dial(const Recording& recording, const Contact& peer, const std::vector<QpPath>& /*paths*/,
                        const c4::Shape& /*shape*/, std::unique_ptr<SendConnection>* connection) {
  return ConnectSender(recording, peer.listeners.front(), BellOf(peer.rank), Shape(), connection);
}

Result ShmBackend::Accept(std::vector<Accepted> accepted, const Recording& recording,
                          ReceiveConnection* connection) {
  const uint32_t chunk_bytes = accepted.front().hello.chunk_bytes;
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
  queue_pairs.reserve(accepted.size());
  for (Accepted& entry : accepted) {
    queue_pairs.emplace_back();
    C4_RETURN_IF_ERROR(
        shm::Accept(std::move(entry), BellOf(recording.peer), KnobCopy(), recording, &queue_pairs.back()));
  }
  connection->Attach(std::move(queue_pairs), chunk_bytes);
  return Ok();
}

void ShmBackend::AppendWakePolls(std::vector<pollfd>* polls) const {
  polls->push_back({bell_.fd(), POLLIN, 0});
}

const pollfd* ShmBackend::TakeWakePolls(const pollfd* polls) {
  if (polls->revents != 0) bell_.Drain();
  return polls + 1;
}

void ShmBackend::WakePeers() {
  if (!crowded_) return;
  for (auto& [rank, neighbour] : neighbours_) {
    if (neighbour.bell != nullptr) neighbour.bell->RingNoted();
  }
}

}  // namespace c4::shm
