#include "ccl/transport/backend.h"

#include <algorithm>

#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/transport/shm/connect.h"
#include "ccl/transport/shm/memory.h"
#include "ccl/transport/tcp/connect.h"
#include "ccl/transport/verbs/connect.h"

namespace c4 {

Shape KnobShape() {
  Shape shape;
  shape.queue_pairs = static_cast<uint32_t>(KnobNumber(Knob::C4_QUEUE_PAIRS));
  shape.chunk_bytes = static_cast<uint32_t>(KnobNumber(Knob::C4_CHUNK_BYTES));
  shape.window_bytes = static_cast<size_t>(KnobNumber(Knob::C4_WINDOW_BYTES));
  shape.fails_over = KnobNumber(Knob::C4_FAILOVER) != 0;
  shape.give_up_ns = static_cast<uint64_t>(KnobNumber(Knob::C4_FENCE_TIMEOUT)) * 1000000000u;
  return shape;
}

Backends Backends::Make(bool neighbours) {
  std::vector<std::unique_ptr<Backend>> tried;
  if (neighbours && KnobNumber(Knob::C4_SHM) != 0) tried.push_back(std::make_unique<shm::ShmBackend>());
  tried.push_back(std::make_unique<verbs::VerbsBackend>());
  tried.push_back(std::make_unique<tcp::TcpBackend>());
  return Backends(std::move(tried));
}

void Backends::Listen(Contact* own) {
  own->host_hash = shm::HostHash();
  std::erase_if(all_, [own](const auto& backend) {
    const Result listens = backend->Listen(own);
    if (!listens.ok()) {
      C4_INFO("does without the %s transport: %s", backend->name(), listens.message().c_str());
    }
    return !listens.ok();
  });
}

void Backends::Know(const Contact& own, const std::vector<Contact>& peers) {
  for (const auto& backend : all_) backend->Know(own, peers);
}

void Backends::TellAcceptor(Acceptor* acceptor) const {
  for (const auto& backend : all_) acceptor->Take(backend->kind());
}

Backend* Backends::To(const Contact& peer) const {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const auto& backend) { return backend->Reaches(peer); });
  return found == all_.end() ? nullptr : found->get();
}

Backend* Backends::Of(const Hello& hello) const {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [&](const auto& backend) { return backend->kind() == TransportOf(hello); });
  return found == all_.end() ? nullptr : found->get();
}

DeviceMemoryWays Backends::device_memory() const {
  return all_.empty() ? DeviceMemoryWays() : all_.front()->device_memory();
}

void Backends::AppendDevicePolls(std::vector<pollfd>* polls) const {
  for (const auto& backend : all_) backend->AppendDevicePolls(polls);
}

const pollfd* Backends::TakeDevicePolls(const pollfd* polls) const {
  for (const auto& backend : all_) polls = backend->TakeDevicePolls(polls);
  return polls;
}

std::vector<SocketAddress> Backends::TakeLost() const {
  std::vector<SocketAddress> lost;
  for (const auto& backend : all_) backend->TakeLost(&lost);
  return lost;
}

}  // namespace c4
