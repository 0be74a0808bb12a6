#include "ccl/bootstrap/meeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <poll.h>
#include <string>
#include <utility>

#include "ccl/base/clock.h"
#include "ccl/base/identity.h"
#include "ccl/base/log.h"

namespace c4::bootstrap {
// One connection to the rank that gathers.
struct MeetingGuest {
  Fd fd;
  std::string address;
  uint64_t since_ns = 0;
  std::vector<char> bytes;  // Meet, then the record
  size_t place = 0;         // among the ranks of the meeting, once it has joined
  bool joined = false;
  bool other = false;  // came for another meeting

  Meet meet() const {
    Meet read{};
    memcpy(&read, bytes.data(), sizeof read);
    return read;
  }
};

namespace {

using Guest = MeetingGuest;

constexpr int kBacklog = 1024;
// Who connected and has not said who it is for this long is a stranger.
constexpr uint64_t kSilenceNs = 10000000000u;
constexpr uint64_t kAnswerNs = 10000000000u;
// A rank that comes for another meeting may be what is left of one that failed; if it stays, it means it.
constexpr uint64_t kOtherNs = 2000000000u;
constexpr uint64_t kLateNs = 300000000u;

void FillHeader(uint64_t magic, size_t header_bytes, size_t record_bytes, size_t records,
                wire::Header* header) {
  header->magic = magic;
  header->major = kMajor;
  header->minor = kMinor;
  header->endian = wire::kEndianMark;
  header->header_bytes = static_cast<uint32_t>(header_bytes);
  header->record_bytes = static_cast<uint32_t>(record_bytes);
  header->total_bytes = header_bytes + record_bytes * records;
  header->writer = CurrentProcess();
}

Met MakeMet(const Result& result, size_t rank_count, size_t bytes) {
  Met met{};
  const size_t records = result.ok() ? rank_count : 0;
  FillHeader(kMetMagic, sizeof met, bytes, records, &met.header);
  met.code = result.code();
  met.rank_count = static_cast<uint32_t>(records);
  met.record_bytes = static_cast<uint32_t>(bytes);
  memcpy(met.text, result.message().data(), std::min(result.message().size(), sizeof met.text - 1));
  return met;
}

class Gathering {
 public:
  Gathering(const UniqueId& id, const Sha256Digest& key, uint64_t communicator_id, int listener,
            const std::vector<int>& ranks, uint64_t meeting, size_t record_bytes, char* all,
            std::vector<std::unique_ptr<Guest>> early)
      : id_(id),
        key_(key),
        communicator_id_(communicator_id),
        listener_(listener),
        ranks_(ranks),
        meeting_(meeting),
        record_bytes_(record_bytes),
        all_(all),
        present_(ranks.size()),
        guests_(std::move(early)) {}

  // Gathers all records but the first, which is there, and gives them out.
  Result Run(const Patience& patience) {
    Result result = AdmitTheEarly();
    if (result.ok()) result = Gather(patience);
    const bool left = !result.ok() && !patience.Check().ok();
    told_ = left ? Fail(ncclRemoteError, "rank %d left: %s", ranks_[0], result.message().c_str()) : result;
    failed_ = !result.ok();
    for (const auto& guest : guests_) {
      if (guest->fd.valid() && (guest->joined || (failed_ && IsMember(*guest)))) Answer(*guest);
    }
    if (failed_ && !left && !patience.over()) TellTheLate(patience);
    return result;
  }

  // Those that came for another meeting, which this rank may be about to hold, or have not said yet for
  // which.
  std::vector<std::unique_ptr<Guest>> TakeEarly() {
    std::erase_if(guests_, [this](const auto& guest) {
      return !guest->fd.valid() || guest->joined || (failed_ && IsMember(*guest));
    });
    return std::move(guests_);
  }

 private:
  bool IsMember(const Guest& guest) const { return guest.other && Find(guest) != ranks_.end(); }
  std::vector<int>::const_iterator Find(const Guest& guest) const {
    return std::find(ranks_.begin() + 1, ranks_.end(), static_cast<int>(guest.meet().rank));
  }

  Result AdmitTheEarly() {
    for (const auto& guest : guests_) {
      if (!guest->other) continue;
      guest->since_ns = MonotonicNs();
      C4_RETURN_IF_ERROR(Admit(guest.get()));
    }
    std::erase_if(guests_, [](const auto& guest) { return !guest->fd.valid(); });
    return Ok();
  }

  // What is left of an attempt that its rank gave up before this one was held: it may come again.
  static bool Gone(const Guest& guest) {
    char next = 0;
    return recv(guest.fd.get(), &next, 1, MSG_PEEK) == 0;
  }

  Result Gather(const Patience& patience) {
    while (joined_ + 1 < ranks_.size()) {
      C4_RETURN_IF_ERROR(patience.Check());
      if (patience.over()) {
        return Fail(ncclRemoteError, "rank %d did not come in time (C4_INIT_TIMEOUT)", FirstAbsent());
      }
      C4_RETURN_IF_ERROR(Turn());
    }
    return Ok();
  }

  // Those that come a moment after a failure hear of it too.
  void TellTheLate(const Patience& patience) {
    const uint64_t until_ns = MonotonicNs() + kLateNs;
    while (joined_ + 1 < ranks_.size() && MonotonicNs() < until_ns && patience.Check().ok()) {
      const Result ignored = Turn();
      (void)ignored;  // the first failure is the one that counts
    }
  }

  void Answer(const Guest& guest) const {
    const Met met = MakeMet(told_, ranks_.size(), record_bytes_);
    const Patience answer{.deadline = MonotonicNs() + kAnswerNs};
    Result sent = PatientSend(guest.fd.get(), &met, sizeof met, answer);
    if (sent.ok() && told_.ok()) {
      sent = PatientSend(guest.fd.get(), all_, ranks_.size() * record_bytes_, answer);
    }
    if (!sent.ok()) C4_INFO("%s left a meeting early: %s", guest.address.c_str(), sent.message().c_str());
  }

  // One look at all that has come.
  Result Turn() {
    std::vector<pollfd> entries{{listener_, POLLIN, 0}};
    for (const auto& guest : guests_) entries.push_back({guest->fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), kLookMs) < 0 && errno != EINTR) {
      return Fail(ncclSystemError, "cannot wait for the other ranks: %s", ErrnoText(errno).c_str());
    }
    Result result;
    for (size_t i = 0; i < guests_.size() && result.ok(); ++i) {
      result = Attend(guests_[i].get(), entries[i + 1].revents != 0);
    }
    std::erase_if(guests_, [](const auto& guest) { return !guest->fd.valid(); });
    if (entries[0].revents != 0) Accept();
    return result;
  }

  int FirstAbsent() const {
    for (size_t i = 1; i < ranks_.size(); ++i) {
      if (!present_[i]) return ranks_[i];
    }
    return ranks_[0];
  }

  void Accept() {
    for (;;) {
      auto guest = std::make_unique<Guest>();
      SocketAddress from;
      bool any = false;
      if (!TryAccept(listener_, &guest->fd, &from, &any).ok() || !any) return;
      guest->address = from.ToString();
      guest->since_ns = MonotonicNs();
      guests_.push_back(std::move(guest));
    }
  }

  // Not Ok ends the meeting for all.
  Result Attend(Guest* guest, bool readable) {
    const uint64_t waited_ns = MonotonicNs() - guest->since_ns;
    if (!readable && waited_ns > kOtherNs && IsMember(*guest)) {
      return Fail(
          ncclInvalidUsage,
          "rank %u makes another call, or names other ranks: all ranks have to make the same calls in "
          "the same order",
          guest->meet().rank);
    }
    if (!readable) {
      if (!guest->joined && !guest->other && waited_ns > kSilenceNs) guest->fd.Reset();
      return Ok();
    }
    const bool whole = guest->joined || guest->other;
    const size_t have = guest->bytes.size();
    const size_t want = whole                 ? 1
                        : have < sizeof(Meet) ? sizeof(Meet) - have
                                              : sizeof(Meet) + guest->meet().record_bytes - have;
    char buffer[kMostRecordBytes];
    const ssize_t got = recv(guest->fd.get(), buffer, std::min(want, sizeof buffer), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Ok();
    if (got <= 0 || whole) {
      guest->fd.Reset();
      if (!guest->joined) return Ok();
      return Fail(ncclRemoteError, "rank %u at %s left before all ranks had come", guest->meet().rank,
                  guest->address.c_str());
    }
    guest->bytes.insert(guest->bytes.end(), buffer, buffer + got);
    if (guest->bytes.size() < sizeof(Meet)) return Ok();
    if (const char* fault = CheckMeet(guest->bytes.data(), sizeof(Meet), id_.nonce, communicator_id_)) {
      WarnTurnedAway(guest->address.c_str(), "a meeting of ranks",
                     (std::string("what it sent ") + fault).c_str());
      guest->fd.Reset();
      return Ok();
    }
    if (guest->bytes.size() < sizeof(Meet) + guest->meet().record_bytes) return Ok();
    if (!IsSigned(guest->meet(), guest->bytes.data() + sizeof(Meet), key_)) {
      WarnTurnedAway(guest->address.c_str(), "a meeting of ranks",
                     "it does not prove that it is one of them");
      guest->fd.Reset();
      return Ok();
    }
    return Admit(guest);
  }

  Result Admit(Guest* guest) {
    if (Gone(*guest)) {
      guest->fd.Reset();
      return Ok();
    }
    const Meet meet = guest->meet();
    const auto found = Find(*guest);
    guest->other = found == ranks_.end() || meet.meeting != meeting_;
    if (guest->other) return Ok();
    guest->joined = true;
    guest->place = static_cast<size_t>(found - ranks_.begin());
    if (failed_) {
      Answer(*guest);
      guest->fd.Reset();
      ++joined_;
      return Ok();
    }
    if (present_[guest->place]) return Fail(ncclInvalidUsage, "rank %u came twice", meet.rank);
    present_[guest->place] = true;
    ++joined_;
    if (meet.record_bytes != record_bytes_) {
      return Fail(ncclInvalidUsage, "rank %u brings a record of %u bytes, rank %d one of %zu", meet.rank,
                  meet.record_bytes, ranks_[0], record_bytes_);
    }
    memcpy(all_ + guest->place * record_bytes_, guest->bytes.data() + sizeof(Meet), record_bytes_);
    return Ok();
  }

  const UniqueId& id_;
  const Sha256Digest& key_;
  const uint64_t communicator_id_;
  const int listener_;
  const std::vector<int>& ranks_;
  const uint64_t meeting_;
  const size_t record_bytes_;
  char* const all_;
  std::vector<bool> present_;
  size_t joined_ = 0;
  bool failed_ = false;
  Result told_;  // what every rank hears
  std::vector<std::unique_ptr<Guest>> guests_;
};

}  // namespace

Meeting::Meeting(const UniqueId& id, uint64_t communicator_id, int rank)
    : id_(id), communicator_id_(communicator_id), rank_(rank) {}

Meeting::~Meeting() = default;

Result Meeting::Open(const SocketAddress& address, RankInfo* info) {
  SocketAddress place = address;
  place.set_port(0);
  C4_RETURN_IF_ERROR(Listen(&place, kBacklog, &listener_));
  info->listener.reserved[0] = place.port();
  return Ok();
}

void Meeting::Know(const std::vector<RankInfo>& all, const Sha256Digest& key) {
  key_ = key;
  places_.clear();
  for (const RankInfo& info : all) {
    places_.push_back(info.listener);
    places_.back().port = info.listener.reserved[0];
  }
}

Result Meeting::Hold(const std::vector<int>& ranks, const void* mine, size_t bytes, void* all,
                     const Patience& patience) {
  if (bytes == 0 || bytes > kMostRecordBytes) {
    return Fail(ncclInternalError, "a record of %zu bytes is none to gather", bytes);
  }
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end() || ranks.front() < 0 || static_cast<size_t>(ranks.back()) >= places_.size()) {
    return Fail(ncclInternalError, "rank %d cannot meet ranks that it is none of", rank_);
  }
  memcpy(static_cast<char*>(all) + static_cast<size_t>(self - ranks.begin()) * bytes, mine, bytes);
  const uint64_t who = HashBytes(ranks.data(), ranks.size() * sizeof ranks[0]);
  // Counted when it succeeds: those who took part in one that failed all know that it did.
  const uint64_t meeting = HashBytes(&who, sizeof who, held_[who]);
  Result result = Ok();
  if (ranks.size() > 1) {
    if (rank_ == ranks.front()) {
      Gathering gathering(id_, key_, communicator_id_, listener_.get(), ranks, meeting, bytes,
                          static_cast<char*>(all), std::move(early_));
      result = gathering.Run(patience);
      early_ = gathering.TakeEarly();
    } else {
      result = Attend(ranks.front(), meeting, ranks.size(), mine, bytes, all, patience);
    }
  }
  if (result.ok()) ++held_[who];
  return result;
}

Result Meeting::Attend(int first, uint64_t meeting, size_t rank_count, const void* mine, size_t bytes,
                       void* all, const Patience& patience) {
  const wire::Endpoint& place = places_[static_cast<size_t>(first)];
  if (place.port == 0) {
    return Fail(
        ncclInvalidUsage,
        "rank %d runs an older release, which cannot split communicators: use one release on all ranks",
        first);
  }
  Meet meet{};
  FillHeader(kMeetMagic, sizeof meet, bytes, 1, &meet.header);
  memcpy(meet.nonce, id_.nonce, sizeof meet.nonce);
  meet.communicator_id = communicator_id_;
  meet.meeting = meeting;
  meet.rank = static_cast<uint32_t>(rank_);
  meet.record_bytes = static_cast<uint32_t>(bytes);
  SignMeet(&meet, mine, key_);

  Fd fd;
  Met met{};
  Result result = PatientConnect(FromEndpoint(place), patience, &fd);
  if (result.ok()) result = PatientSend(fd.get(), &meet, sizeof meet, patience);
  if (result.ok()) result = PatientSend(fd.get(), mine, bytes, patience);
  if (result.ok()) result = PatientReceive(fd.get(), &met, sizeof met, patience);
  if (!result.ok()) {
    return Fail(result.code(), "rank %d could not meet rank %d: %s", rank_, first, result.message().c_str());
  }
  const wire::HeaderFault fault = wire::CheckHeader(&met, sizeof met, kMetMagic, kMajor, sizeof met);
  if (fault != wire::HeaderFault::kOk) {
    return Fail(ncclRemoteError, "the answer of rank %d %s: use one release on all ranks", first,
                wire::HeaderFaultText(fault));
  }
  if (met.code != ncclSuccess) {
    met.text[sizeof met.text - 1] = '\0';
    return {met.code < ncclNumResults ? static_cast<ncclResult_t>(met.code) : ncclRemoteError, met.text};
  }
  if (met.rank_count != rank_count || met.record_bytes != bytes) {
    return Fail(ncclRemoteError, "rank %d answered with %u records of %u bytes instead of %zu of %zu", first,
                met.rank_count, met.record_bytes, rank_count, bytes);
  }
  return PatientReceive(fd.get(), all, rank_count * bytes, patience);
}

}  // namespace c4::bootstrap
