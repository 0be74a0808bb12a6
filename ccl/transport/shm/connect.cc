#include "ccl/transport/shm/connect.h"

#include <cstring>
#include <utility>
#include <vector>

#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/transport/tcp/connect.h"

namespace c4::shm {

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
  const tcp::Hello hello = tcp::MakeHello(recording, 0, 1, shape.chunk_bytes);
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

Result Accept(tcp::Accepted accepted, std::shared_ptr<PeerBell> bell, Copy copy, const Recording& recording,
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

}  // namespace c4::shm
