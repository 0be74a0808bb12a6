#include "ccl/transport/acceptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/log.h"
#include "ccl/transport/seal.h"

namespace c4 {
namespace {

constexpr uint64_t kHelloTimeoutNs = 5000000000u;
constexpr size_t kMostStrangers = 256;
constexpr uint64_t kShortagePauseNs = 100000000u;

// Of one that says what it speaks: both have to be named, or nobody knows which side to update.
std::string Versions(const char* hello) {
  wire::Header header;
  memcpy(&header, hello, sizeof header);
  if (header.magic != kHelloMagic || header.major == kHelloMajor) return "";
  return " (it speaks version " + std::to_string(header.major) + "." + std::to_string(header.minor) +
         ", this rank version " + std::to_string(kHelloMajor) + "." + std::to_string(kHelloMinor) +
         ": all ranks need the same library)";
}

}  // namespace

Acceptor::Acceptor(Fd listener, uint64_t communicator_id, int rank, int rank_count)
    : listener_(std::move(listener)),
      communicator_id_(communicator_id),
      rank_(rank),
      rank_count_(rank_count) {}

void Acceptor::TurnAway(const SocketAddress& from, const char* fault) {
  ++turned_away_;
  WarnTurnedAway(from.ToString().c_str(), "the ranks' data", (std::string("its hello ") + fault).c_str());
}

Result Acceptor::AcceptAll(bool* moved) {
  if (shortage_until_ns_ != 0 && MonotonicNs() < shortage_until_ns_) return Ok();
  while (strangers_.size() < kMostStrangers) {
    Stranger stranger;
    bool any = false;
    bool shortage = false;
    C4_RETURN_IF_ERROR(TryAccept(listener_.get(), &stranger.fd, &stranger.from, &any, &shortage));
    if (shortage && shortage_until_ns_ == 0) {
      C4_WARN(
          "no descriptor or memory is left to accept connections with: they wait until some is free "
          "(ulimit -n)");
    }
    shortage_until_ns_ = shortage ? MonotonicNs() + kShortagePauseNs : 0;
    if (!any) return Ok();
    *moved = true;
    stranger.deadline_ns = MonotonicNs() + kHelloTimeoutNs;
    strangers_.push_back(std::move(stranger));
  }
  return Ok();
}

Result Acceptor::Progress(bool* moved) {
  C4_RETURN_IF_ERROR(AcceptAll(moved));
  if (strangers_.empty()) return Ok();
  const uint64_t now_ns = MonotonicNs();
  size_t kept = 0;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    if (!Listen(&strangers_[i], now_ns, moved)) continue;
    if (kept != i) strangers_[kept] = std::move(strangers_[i]);
    ++kept;
  }
  strangers_.resize(kept);
  return Ok();
}

const char* Acceptor::Check(Stranger* stranger) const {
  Hello hello;
  memcpy(&hello, stranger->hello, sizeof hello);
  const bool expected = rank_count_ == 0 && expected_.contains(hello.communicator_id);
  if (const char* fault =
          CheckHello(stranger->hello, stranger->bytes, expected ? hello.communicator_id : communicator_id_,
                     rank_, rank_count_)) {
    return fault;
  }
  if (rank_count_ == 0 && !expected) return "belongs to no connection that is waited for";
  stranger->wanted = HelloBytes(hello);
  if (IsFenceStream(hello) || (takes_ & 1u << TransportOf(hello)) != 0) return nullptr;
  return TransportOf(hello) == wire::kTransportShm
             ? "asks for shared memory, which this rank does not use (C4_SHM, or a hidden /proc)"
             : "asks for RDMA, which this rank does not use (NCCL_IB_DISABLE, or no device)";
}

bool Acceptor::IsProven(const Stranger& stranger) const {
  Hello hello;
  memcpy(&hello, stranger.hello, sizeof hello);
  const auto expected = expected_.find(hello.communicator_id);
  const bool by_number = rank_count_ == 0 && expected != expected_.end();
  return IsSealed(stranger.hello, stranger.bytes, by_number ? expected->second : key_);
}

bool Acceptor::Listen(Stranger* stranger, uint64_t now_ns, bool* moved) {
  while (stranger->bytes < stranger->wanted) {
    const ssize_t got =
        recv(stranger->fd.get(), stranger->hello + stranger->bytes, stranger->wanted - stranger->bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      if (now_ns < stranger->deadline_ns) return true;
      TurnAway(stranger->from, "did not come in time");
      return false;
    }
    if (got <= 0 && stranger->bytes == 0)
      return false;  // a probe of the path, or of the port: it wants nothing
    if (got <= 0) {
      TurnAway(stranger->from, "was cut short");
      return false;
    }
    stranger->bytes += static_cast<size_t>(got);
    // Another version's may be shorter.
    if (stranger->bytes >= sizeof(wire::Header) && stranger->bytes < sizeof(Hello)) {
      const std::string versions = Versions(stranger->hello);
      if (versions.empty()) continue;
      *moved = true;
      TurnAway(stranger->from, ("is of another version" + versions).c_str());
      return false;
    }
    if (stranger->bytes != sizeof(Hello)) continue;
    if (const char* fault = Check(stranger)) {
      *moved = true;
      TurnAway(stranger->from, (fault + Versions(stranger->hello)).c_str());
      return false;
    }
  }
  *moved = true;
  if (!IsProven(*stranger)) {
    TurnAway(stranger->from, "does not prove that it is of this communicator's job");
    return false;
  }
  TakeIn(stranger);
  return false;
}

ConnectionKey Acceptor::KeyOf(const Hello& hello) const {
  const uint64_t sender =
      rank_count_ == 0 ? HashBytes(&hello.header.writer, sizeof hello.header.writer) : uint64_t{0};
  return {hello.communicator_id, sender, hello.from_rank, hello.channel};
}

// What comes late indexes tables that were made from the first hellos.
bool Acceptor::Fits(const Hello& late, const Hello& first) {
  return FailsOver(first) && (IsFenceStream(late) || late.transport == first.transport) &&
         late.queue_pair_count == first.queue_pair_count && late.chunk_bytes == first.chunk_bytes;
}

void Acceptor::TakeIn(Stranger* stranger) {
  Hello hello;
  memcpy(&hello, stranger->hello, sizeof hello);
  const ConnectionKey key = KeyOf(hello);
  const auto taken = taken_.find(key);
  if (taken != taken_.end() && (IsFenceStream(hello) || FailsOver(hello)) && !Fits(hello, taken->second)) {
    TurnAway(stranger->from, "counts, cuts or carries otherwise than the connection that it belongs to");
    return;
  }
  if (IsFenceStream(hello) || (taken != taken_.end() && FailsOver(hello))) {
    if (late_.size() >= kMostStrangers) late_.pop_front();
    late_.emplace_back();
    late_.back().fd = std::move(stranger->fd);
    late_.back().hello = hello;
    memcpy(late_.back().tail, stranger->hello + sizeof hello, sizeof late_.back().tail);
    return;
  }
  if (taken != taken_.end()) {
    TurnAway(stranger->from, "names a connection that is there already");
    return;
  }
  std::vector<Accepted>& connection = connections_[key];
  if (connection.empty()) connection.resize(hello.queue_pair_count);
  const auto other = std::find_if(connection.begin(), connection.end(), [&](const Accepted& accepted) {
    return accepted.fd.valid() &&
           (accepted.hello.queue_pair_count != hello.queue_pair_count ||
            accepted.hello.chunk_bytes != hello.chunk_bytes || accepted.hello.transport != hello.transport);
  });
  if (other != connection.end()) {
    TurnAway(stranger->from, "counts, cuts or carries otherwise than its connection's queue pairs before it");
    return;
  }
  Accepted& place = connection[hello.queue_pair_index];
  // A sender that fails over gives a stream up when it does not work at once.
  const bool newer = FailsOver(hello) && hello.epoch > place.hello.epoch;
  if (place.fd.valid() && !newer) {
    TurnAway(stranger->from, "names a queue pair that has come already");
    return;
  }
  place.fd = std::move(stranger->fd);
  place.hello = hello;
  memcpy(place.tail, stranger->hello + sizeof hello, sizeof place.tail);
}

bool Acceptor::Take(int peer, uint16_t channel, std::vector<Accepted>* queue_pairs) {
  return Take({communicator_id_, 0, peer, channel}, queue_pairs);
}

bool Acceptor::Take(const ConnectionKey& key, std::vector<Accepted>* queue_pairs) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return false;
  for (const Accepted& accepted : found->second) {
    if (!accepted.fd.valid()) return false;
  }
  const Hello first = found->second.front().hello;
  *queue_pairs = std::move(found->second);
  connections_.erase(found);
  taken_[key] = first;
  // Control streams may have come before.
  std::erase_if(late_,
                [&](const Accepted& late) { return KeyOf(late.hello) == key && !Fits(late.hello, first); });
  return true;
}

void Acceptor::Expect(uint64_t number, const Sha256Digest& key) {
  expected_[number] = key;
}

void Acceptor::Forget(uint64_t number) {
  expected_.erase(number);
  DropWaiting(number);
  std::erase_if(taken_, [&](const auto& entry) { return entry.first.communicator_id == number; });
}

void Acceptor::DropWaiting(uint64_t number) {
  std::erase_if(connections_, [&](const auto& entry) { return entry.first.communicator_id == number; });
  std::erase_if(late_, [&](const Accepted& late) {
    return late.hello.communicator_id == number && !taken_.contains(KeyOf(late.hello));
  });
}

bool Acceptor::TakeExpected(uint64_t number, ConnectionKey* key, std::vector<Accepted>* queue_pairs) {
  for (auto it = connections_.lower_bound({number, 0, INT32_MIN, 0}); it != connections_.end(); ++it) {
    if (it->first.communicator_id != number) return false;
    *key = it->first;
    if (Take(*key, queue_pairs)) return true;
  }
  return false;
}

void Acceptor::ForgetTaken(const ConnectionKey& key) {
  taken_.erase(key);
  std::erase_if(late_, [&](const Accepted& late) { return KeyOf(late.hello) == key; });
}

bool Acceptor::TakeLate(int* peer, uint16_t* channel, Accepted* accepted) {
  ConnectionKey key;
  if (!TakeLate(&key, accepted)) return false;
  *peer = key.peer;
  *channel = key.channel;
  return true;
}

bool Acceptor::TakeLate(ConnectionKey* key, Accepted* accepted) {
  for (auto it = late_.begin(); it != late_.end(); ++it) {
    *key = KeyOf(it->hello);
    if (!taken_.contains(*key)) continue;
    *accepted = std::move(*it);
    late_.erase(it);
    return true;
  }
  return false;
}

void Acceptor::AppendPolls(std::vector<pollfd>* polls) const {
  // Who is not taken in must not wake anybody either.
  if (strangers_.size() < kMostStrangers && shortage_until_ns_ == 0) {
    polls->push_back({listener_.get(), POLLIN, 0});
  }
  for (const Stranger& stranger : strangers_) polls->push_back({stranger.fd.get(), POLLIN, 0});
}

}  // namespace c4
