#include "ccl/bootstrap/root.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"

namespace c4::bootstrap {
namespace {

// A peer that connected and has not said who it is for this long is a stranger.
constexpr uint64_t kSilenceNs = 10000000000u;
constexpr uint64_t kAnswerNs = 10000000000u;
// How long ranks that come after a misfit are still told of it.
constexpr uint64_t kFailureNs = 30000000000u;
constexpr size_t kMostStrangers = 1024;
constexpr uint16_t kSignedSince = 3;

Table MakeTable(ncclResult_t code, uint32_t rank_count, const std::string& text) {
  Table table{};
  table.header.magic = kTableMagic;
  table.header.major = kMajor;
  table.header.minor = kMinor;
  table.header.endian = wire::kEndianMark;
  table.header.header_bytes = sizeof table;
  table.header.record_bytes = sizeof(RankInfo);
  table.header.total_bytes = sizeof table + uint64_t{rank_count} * sizeof(RankInfo);
  table.header.writer = CurrentProcess();
  table.code = code;
  table.rank_count = rank_count;
  memcpy(table.text, text.data(), std::min(text.size(), sizeof table.text - 1));
  return table;
}

}  // namespace

Root::Root(Fd listener, const uint8_t (&nonce)[16], const uint8_t (&secret)[32])
    : listener_(std::move(listener)) {
  memcpy(secret_, secret, sizeof secret_);
  memcpy(nonce_, nonce, sizeof nonce_);
}

void Root::Run(DeadlineNs deadline) {
  deadline_ = deadline;
  while (!done_ && MonotonicNs() < deadline_) {
    std::vector<pollfd> entries;
    entries.push_back({listener_.get(), POLLIN, 0});
    for (const auto& peer : peers_) entries.push_back({peer->fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), 1000) < 0 && errno != EINTR) return;
    const uint64_t now = MonotonicNs();
    for (size_t i = 0; i < peers_.size() && !done_; ++i) {
      const bool silent = !peers_[i]->joined && now - peers_[i]->since_ns > kSilenceNs;
      if (silent || (entries[i + 1].revents != 0 && !Read(peers_[i].get()))) peers_[i]->fd.Reset();
    }
    if (done_) return;
    std::erase_if(peers_, [](const auto& peer) { return !peer->fd.valid(); });
    if (entries[0].revents != 0) AcceptPeers();
  }
  if (!done_ && failure_ == ncclSuccess)
    FailAll(ncclRemoteError, "not all ranks joined in time (C4_INIT_TIMEOUT)");
}

void Root::AcceptPeers() {
  for (;;) {
    auto peer = std::make_unique<Peer>();
    SocketAddress from;
    if (!Accept(listener_.get(), 0, &peer->fd, &from).ok()) return;
    // Some that joined may have left since.
    if (peers_.size() >= joined_ + kMostStrangers) continue;
    peer->address = from.ToString();
    peer->since_ns = MonotonicNs();
    peers_.push_back(std::move(peer));
  }
}

bool Root::Read(Peer* peer) {
  char* at = reinterpret_cast<char*>(&peer->join) + peer->bytes;
  char beyond = 0;
  const bool whole = peer->bytes == sizeof(Join);
  const ssize_t got =
      whole ? recv(peer->fd.get(), &beyond, 1, 0) : recv(peer->fd.get(), at, sizeof(Join) - peer->bytes, 0);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return true;
  }
  if (got <= 0 || whole) {
    if (peer->joined && failure_ == ncclSuccess) {
      FailAll(ncclRemoteError, "rank " + std::to_string(peer->join.rank) + " at " + peer->address +
                                   " left before all ranks had joined");
    }
    return false;
  }
  peer->bytes += static_cast<size_t>(got);
  return peer->bytes < sizeof(Join) || Admit(peer);
}

bool Root::Admit(Peer* peer) {
  if (const char* fault = CheckJoin(&peer->join, sizeof(Join), nonce_)) {
    WarnTurnedAway(peer->address.c_str(), "a communicator that comes up",
                   (std::string("what it sent ") + fault).c_str());
    return false;
  }
  if (failure_ != ncclSuccess) {
    SendFailure(*peer);
    return false;
  }
  const Join& join = peer->join;
  if (join.header.minor < kSignedSince) {
    peer->joined = true;  // it has the id: it is one of those that are waited for
    FailAll(ncclInvalidUsage, "rank " + std::to_string(join.rank) + " at " + peer->address +
                                  " runs an older release: use one release on all ranks");
    return true;
  }
  if (!IsSigned(join, secret_)) {
    WarnTurnedAway(peer->address.c_str(), "a communicator that comes up",
                   "it does not prove that it has the unique id");
    return false;
  }
  if (table_.empty()) {
    table_.resize(join.rank_count);
    present_.resize(join.rank_count);
  }
  peer->joined = true;
  if (join.rank_count != table_.size()) {
    FailAll(ncclInvalidUsage, "rank " + std::to_string(join.rank) + " at " + peer->address +
                                  " says there are " + std::to_string(join.rank_count) +
                                  " ranks, others say " + std::to_string(table_.size()));
    return true;
  }
  if (present_[join.rank]) {
    FailAll(ncclInvalidUsage, "two processes joined as rank " + std::to_string(join.rank) +
                                  ", the second from " + peer->address);
    return true;
  }
  if (const std::string other = OtherKnob(join); !other.empty()) {
    FailAll(ncclInvalidUsage, other);
    return true;
  }
  present_[join.rank] = true;
  table_[join.rank] = join.info;
  if (++joined_ == table_.size()) Answer();
  return true;
}

std::string Root::OtherKnob(const Join& join) {
  if (join.knobs.slice_bytes == 0) return "";
  if (first_.knobs.slice_bytes == 0) first_ = join;
  const auto differ = [&](Knob knob, const std::string& mine, const std::string& theirs) {
    if (mine == theirs) return std::string();
    return "rank " + std::to_string(join.rank) + " has " + KnobName(knob) + "=" + mine + ", rank " +
           std::to_string(first_.rank) + " has " + theirs + ": all ranks need the same value";
  };
  const SharedKnobs& mine = join.knobs;
  const SharedKnobs& theirs = first_.knobs;
  std::string text =
      differ(Knob::C4_SLICE_BYTES, std::to_string(mine.slice_bytes), std::to_string(theirs.slice_bytes));
  if (text.empty())
    text = differ(Knob::C4_CHANNELS, std::to_string(mine.channels), std::to_string(theirs.channels));
  if (text.empty()) {
    text = differ(Knob::C4_ALGORITHM, KnobChoiceText(Knob::C4_ALGORITHM, mine.algorithm),
                  KnobChoiceText(Knob::C4_ALGORITHM, theirs.algorithm));
  }
  return text;
}

void Root::Answer() {
  Table head = MakeTable(ncclSuccess, static_cast<uint32_t>(table_.size()), "");
  if (!FillRandom(head.session, sizeof head.session)) {
    FailAll(ncclSystemError, "the kernel gave no random bytes");
    return;
  }
  for (const auto& peer : peers_) {
    if (!peer->joined) continue;
    const DeadlineNs deadline = MonotonicNs() + kAnswerNs;
    Result sent = SendAll(peer->fd.get(), &head, sizeof head, deadline);
    if (sent.ok()) sent = SendAll(peer->fd.get(), table_.data(), table_.size() * sizeof(RankInfo), deadline);
    if (!sent.ok()) {
      C4_WARN("rank %u at %s did not take the table of ranks: %s", peer->join.rank, peer->address.c_str(),
              sent.message().c_str());
    }
  }
  done_ = true;
}

void Root::SendFailure(const Peer& peer) const {
  const Table table = MakeTable(failure_, 0, failure_text_);
  const Result ignored = SendAll(peer.fd.get(), &table, sizeof table, MonotonicNs() + kAnswerNs);
  (void)ignored;  // it is gone already
}

void Root::FailAll(ncclResult_t code, const std::string& text) {
  failure_ = code;
  failure_text_ = text;
  for (const auto& peer : peers_) {
    if (peer->joined && peer->fd.valid()) SendFailure(*peer);
  }
  deadline_ = std::min(deadline_, MonotonicNs() + kFailureNs);
}

}  // namespace c4::bootstrap
