#include "ccl/transport/verbs/connect.h"

#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/log.h"
#include "ccl/transport/fence_channel.h"
#include "ccl/transport/stream.h"
#include "ccl/transport/verbs/epoch_stream.h"
#include "ccl/transport/verbs/flusher.h"
#include "ccl/transport/verbs/queue_pair.h"

namespace c4::verbs {

Result VerbsBackend::Listen(Contact* own) {
  C4_RETURN_IF_ERROR(Ports::Find(&ports_));
  for (const UsablePort& port : ports_->all()) {
    C4_INFO("uses %s, GID %d %s", port.name().c_str(), port.gid.index, GidText(port.gid.gid).c_str());
    up_.push_back(true);
  }
  own->takes |= 1u << wire::kTransportVerbs;
  return Ok();
}

Result VerbsBackend::Dial(const Recording& recording, const Contact& /*peer*/,
                          const std::vector<QpPath>& paths, const Shape& shape,
                          std::unique_ptr<SendConnection>* connection) {
  std::vector<std::unique_ptr<SendQueuePair>> queue_pairs;
  const auto count = static_cast<uint32_t>(paths.size());
  const uint64_t give_up_ns = shape.give_up_ns != 0 ? shape.give_up_ns : KnobShape().give_up_ns;
  const auto shared = std::make_shared<VerbsSendQueuePair::Shared>();
  *shared = {MonotonicNs(), give_up_ns};
  for (uint32_t i = 0; i < count; ++i) {
    Hello hello = MakeHello(recording, i, count, shape.chunk_bytes);
    hello.transport = wire::kTransportVerbs;
    hello.header.total_bytes = sizeof(EndHello);
    queue_pairs.push_back(
        std::make_unique<VerbsSendQueuePair>(paths[i], ports_.get(), hello, recording, shared));
  }
  *connection = std::make_unique<SendConnection>(recording.peer, std::move(queue_pairs), shape.chunk_bytes,
                                                 shape.window_bytes);
  const Hello hello = MakeHello(recording, 0, count, shape.chunk_bytes);
  (*connection)
      ->FailOver(std::make_unique<SendFenceStreams>(paths, hello, recording.peer, recording.key), give_up_ns);
  return Ok();
}

Result VerbsBackend::Accept(std::vector<Accepted> accepted, const Recording& recording,
                            ReceiveConnection* connection) {
  const uint32_t chunk_bytes = accepted.front().hello.chunk_bytes;
  const auto granted = std::make_shared<uint64_t>(0);
  const auto flusher = std::make_shared<ReadFlusher>(ports_->settings());
  std::vector<std::unique_ptr<ReceiveQueuePair>> queue_pairs;
  std::vector<ReceiveQueuePair*> known;
  for (Accepted& entry : accepted) {
    queue_pairs.push_back(
        std::make_unique<VerbsReceiveQueuePair>(std::move(entry), ports_.get(), granted, flusher, recording));
    known.push_back(queue_pairs.back().get());
  }
  connection->Attach(std::move(queue_pairs), chunk_bytes,
                     std::make_unique<ReceiveFenceStreams>(std::move(known), recording.peer), flusher);
  return Ok();
}

DeviceMemoryWays VerbsBackend::device_memory() const {
  return ports_ == nullptr ? DeviceMemoryWays() : ports_->device_memory();
}

Result VerbsBackend::Register(const Buffer& buffer, size_t bytes, int dma_buf, uint64_t dma_buf_offset,
                              std::unique_ptr<c4::Registration>* registration) {
  registration->reset();
  if (buffer.kind != MemoryKind::kHost) {
    const DeviceMemoryWays ways = device_memory();
    if (dma_buf >= 0 && !ways.by_dma_buf) {
      return Fail(ncclInvalidArgument,
                  "not all RDMA devices of this host take dma-bufs: that needs Linux 5.12, rdma-core 34 and "
                  "a driver that has them");
    }
    if (dma_buf < 0 && !ways.by_address) {
      return Fail(ncclInvalidArgument,
                  "GPU memory cannot be registered by its address: load the kernel module nvidia_peermem, "
                  "or let NCCL use dma-bufs (NCCL_DMABUF_ENABLE=1)");
    }
  }
  if (bytes == 0) return Ok();
  auto made = std::make_unique<DeviceMemory>(buffer.kind, buffer.device);
  C4_RETURN_IF_ERROR(made->Acquire(*ports_, buffer.address, bytes, dma_buf, dma_buf_offset));
  *registration = std::move(made);
  return Ok();
}

void VerbsBackend::AppendDevicePolls(std::vector<pollfd>* polls) const {
  for (const auto& device : ports_->devices()) polls->push_back({device->events_fd(), POLLIN, 0});
}

const pollfd* VerbsBackend::TakeDevicePolls(const pollfd* polls) {
  for (size_t i = 0; i < ports_->devices().size(); ++i) news_ = news_ || (polls++)->revents != 0;
  return polls;
}

void VerbsBackend::TakeLost(std::vector<SocketAddress>* lost) {
  if (!std::exchange(news_, false)) return;
  for (const auto& device : ports_->devices()) (void)device->TakeEvents();
  for (size_t i = 0; i < ports_->all().size(); ++i) {
    const UsablePort& port = ports_->all()[i];
    const bool up = port.device->port_up(port.port.number);
    const bool was_up = up_[i];
    up_[i] = up;
    if (was_up && !up) lost->push_back(AddressOf(port.gid.gid, 0));
  }
}

}  // namespace c4::verbs
