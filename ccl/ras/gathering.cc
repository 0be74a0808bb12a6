#include "ccl/ras/gathering.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "ccl/base/clock.h"

namespace c4::ras {
namespace {

constexpr uint64_t kAgainNs = 250000000;  // a question or its answer may get lost

std::string HostOf(const SocketAddress& place) {
  std::string text = place.ToString();
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) text.resize(colon);
  if (text.size() > 2 && text.front() == '[') text = text.substr(1, text.size() - 2);
  return text;
}

bool IsSamePlace(const SocketAddress& a, const SocketAddress& b) {
  const wire::Endpoint first = ToEndpoint(a);
  const wire::Endpoint second = ToEndpoint(b);
  return first.port == second.port && memcmp(first.address, second.address, sizeof first.address) == 0;
}

}  // namespace

Gathering::Gathering(const Members& members, const wire::ProcessIdentity& own, uint64_t query, int timeout_s,
                     uint64_t now_ns)
    : own_(own),
      query_(query),
      began_ns_(now_ns),
      deadline_ns_(timeout_s == 0 ? std::numeric_limits<uint64_t>::max()
                                  : now_ns + static_cast<uint64_t>(timeout_s) * 1000000000u),
      next_ns_(now_ns) {
  for (const auto& member : members) {
    for (uint32_t rank = 0; rank < member->peers.size(); ++rank) {
      const Peer& peer = member->peers[rank];
      const size_t target = TargetOf(peer.process, peer.place);
      seats_.push_back({member->communicator_id, rank, static_cast<uint32_t>(member->peers.size()), target});
      if (peer.place.port() != 0) targets_[target].places.push_back({member, rank});
    }
  }
  for (Target& target : targets_) {
    if (!wire::IsSameProcess(target.process, own_)) continue;
    target.answered = true;
    for (const auto& member : members) target.states.push_back(member->state());
  }
  // Where a rank takes no questions, it has not answered, and is not gone either.
  open_ = static_cast<size_t>(std::count_if(targets_.begin(), targets_.end(),
                                            [this](const Target& target) { return IsOpen(target); }));
}

Gathering::ProcessKey Gathering::KeyOf(wire::ProcessIdentity process) {
  process.reserved = 0;
  ProcessKey key;
  memcpy(key.data(), &process, sizeof process);
  return key;
}

size_t Gathering::TargetOf(const wire::ProcessIdentity& process, const SocketAddress& place) {
  const auto [at, is_new] = target_of_.try_emplace(KeyOf(process), targets_.size());
  if (is_new) {
    targets_.emplace_back();
    targets_.back().process = process;
    targets_.back().host = HostOf(place);
  }
  return at->second;
}

void Gathering::Ask(uint64_t now_ns) {
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kAgainNs;
  for (const Target& target : targets_) {
    if (!IsOpen(target)) continue;
    const Place& place = target.places[target.at];
    ras::Ask ask{};
    FillHeader(kAskMagic, 0, own_, &ask);
    ask.communicator_id = place.member->communicator_id;
    ask.query = query_;
    ask.from_rank = place.member->rank;
    ask.to_rank = place.rank;
    Sign<ras::Ask>(&ask, sizeof ask, place.member->key);
    const SocketAddress& to = place.member->peers[place.rank].place;
    // What one cannot send is asked again; an error may be an earlier question's.
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (sendto(place.member->socket.get(), &ask, sizeof ask, MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&to.storage), to.length) >= 0 ||
          errno == EAGAIN) {
        break;
      }
    }
  }
}

void Gathering::Take(const Member& member, const void* data, size_t bytes) {
  Tell tell;
  memcpy(&tell, data, sizeof tell);
  if (tell.query != query_ || tell.from_rank >= member.peers.size() ||
      bytes != sizeof tell + tell.records * sizeof(State)) {
    return;
  }
  const auto found = target_of_.find(KeyOf(member.peers[tell.from_rank].process));
  if (found == target_of_.end()) return;
  Target& target = targets_[found->second];
  if (target.answered) return;
  for (uint32_t i = 0; i < tell.records; ++i) {
    State state;
    memcpy(&state, static_cast<const char*>(data) + sizeof tell + i * sizeof state, sizeof state);
    const auto known = std::find_if(target.states.begin(), target.states.end(), [&](const State& other) {
      return other.communicator_id == state.communicator_id && other.rank == state.rank;
    });
    if (known != target.states.end()) {
      *known = state;
    } else if (target.states.size() < kMostCommunicators) {
      target.states.push_back(state);
    }
  }
  if (target.states.size() < tell.total) return;  // the other parts are to come
  if (IsOpen(target)) --open_;
  target.answered = true;
}

void Gathering::Refused(const Member& member, const SocketAddress& place) {
  for (Target& target : targets_) {
    if (!IsOpen(target)) continue;
    const Place& asked = target.places[target.at];
    if (asked.member.get() != &member || !IsSamePlace(member.peers[asked.rank].place, place)) continue;
    ++target.at;
    if (IsOpen(target)) {
      next_ns_ = 0;
    } else {
      --open_;
    }
  }
}

Report Gathering::Finish(uint64_t now_ns) const {
  std::vector<ProcessTold> processes;
  for (const Target& target : targets_) {
    ProcessTold& process = processes.emplace_back();
    process.host = target.host;
    process.pid = target.process.pid;
    process.answered = target.answered;
    process.dead = !target.answered && !target.places.empty() && target.at >= target.places.size();
    if (target.answered) process.states = target.states;
  }
  return Compose(std::move(processes), seats_, static_cast<double>(now_ns - began_ns_) / 1e9);
}

}  // namespace c4::ras
