// What a communicator tells NCCL's RAS of itself (ccl/ras/server.h).
#include <memory>
#include <utility>

#include "ccl/base/log.h"
#include "ccl/engine/host/communicator.h"
#include "ccl/ras/server.h"

namespace c4::host {
namespace {

// Its kind; kKinds for what is not counted.
constexpr ras::Kind KindOf(wire::Function function) {
  switch (function) {
    case wire::kBroadcast:
      return ras::kBroadcast;
    case wire::kReduce:
      return ras::kReduce;
    case wire::kAllGather:
      return ras::kAllGather;
    case wire::kReduceScatter:
      return ras::kReduceScatter;
    case wire::kAllReduce:
      return ras::kAllReduce;
    case wire::kAlltoAll:
      return ras::kAlltoAll;
    case wire::kGather:
      return ras::kGather;
    case wire::kScatter:
      return ras::kScatter;
    default:
      return ras::kKinds;
  }
}

}  // namespace

// At the place where the rank takes meetings.
void HostCommunicator::OpenRasSocket(const SocketAddress& listens, const bootstrap::RankInfo& info) {
  if (!ras::IsWanted()) return;
  SocketAddress place = listens;
  place.set_port(info.listener.reserved[0]);
  const Result result = ras::OpenSocket(place, &ras_socket_);
  if (!result.ok()) C4_INFO("rank %d is in no report of NCCL's RAS: %s", rank_, result.message().c_str());
}

void HostCommunicator::MakeRasMember(const std::vector<bootstrap::RankInfo>& ranks, const Sha256Digest& key) {
  auto member = std::make_shared<ras::Member>();
  member->communicator_id = recorder_.slot().communicator_id;
  member->rank = static_cast<uint32_t>(rank_);
  member->key = key;
  member->socket = std::move(ras_socket_);
  for (const bootstrap::RankInfo& info : ranks) {
    ras::Peer& peer = member->peers.emplace_back();
    peer.process = info.process;
    peer.process.reserved = 0;
    peer.place = FromEndpoint(info.listener);
    peer.place.set_port(info.listener.reserved[0]);
  }
  member->state = [this] { return RasState(); };
  ras_ = std::move(member);
}

void HostCommunicator::Count(wire::Function function, int64_t calls) {
  const ras::Kind kind = KindOf(function);
  if (kind == ras::kKinds) return;
  std::atomic<uint64_t>& counter = calls_[kind];
  counter.store(counter.load(std::memory_order_relaxed) + static_cast<uint64_t>(calls),
                std::memory_order_relaxed);
}

ras::State HostCommunicator::RasState() const {
  ras::State state{};
  state.communicator_id = recorder_.slot().communicator_id;
  state.rank = static_cast<uint32_t>(rank_);
  state.rank_count = static_cast<uint32_t>(rank_count_);
  state.async_error = AsyncError().code();
  const State now = state_.load();
  if (now == State::kFinalizing) state.flags = ras::kFinalized;
  if (now == State::kAborted) state.flags = ras::kAborted;
  for (size_t kind = 0; kind < ras::kKinds; ++kind)
    state.calls[kind] = calls_[kind].load(std::memory_order_relaxed);
  return state;
}

}  // namespace c4::host
