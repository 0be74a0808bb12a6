#include "ccl/bootstrap/bootstrap.h"

#include <cstddef>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ccl/base/caught.h"
#include "ccl/base/clock.h"
#include "ccl/base/fork.h"
#include "ccl/base/identity.h"
#include "ccl/base/kernel.h"
#include "ccl/base/knobs.h"
#include "ccl/base/thread.h"
#include "ccl/bootstrap/root.h"

namespace c4::bootstrap {
namespace {

constexpr int kBacklog = 1024;
constexpr uint64_t kPortPatienceNs = 10000000000u;
constexpr uint64_t kForgetNs = 200000000u;

uint64_t Check(const UniqueId& id) {
  return HashBytes(id.secret, sizeof id.secret, HashBytes(&id, offsetof(UniqueId, check)));
}

DeadlineNs InitDeadline() {
  return AfterSeconds(KnobNumber(Knob::C4_INIT_TIMEOUT));
}

void Pause() {
  timespec pause{0, 20000000};
  nanosleep(&pause, nullptr);
}

// `patience`: how long a port that the root before this one is about to give up is waited for.
Result StartRoot(SocketAddress* address, const UniqueId& id, const Patience& patience) {
  Fd listener;
  for (;;) {
    Result listening = Listen(address, kBacklog, &listener);
    if (listening.ok()) break;
    if (patience.over()) return listening;
    C4_RETURN_IF_ERROR(patience.Check());
    Pause();
  }
  auto root = std::make_shared<Root>(std::move(listener), id.nonce, id.secret);
  Thread thread;
  C4_RETURN_IF_ERROR(thread.Start("c4-root", [root] { root->Run(InitDeadline()); }));
  thread.Detach();
  return Ok();
}

Result JoinOnce(const UniqueId& id, const Join& join, const Patience& patience, std::vector<RankInfo>* all,
                bool* answered, Sha256Digest* key) {
  Fd fd;
  C4_RETURN_IF_ERROR(PatientConnect(FromEndpoint(id.root), patience, &fd));
  C4_RETURN_IF_ERROR(PatientSend(fd.get(), &join, sizeof join, patience));
  Table table{};
  C4_RETURN_IF_ERROR(PatientReceive(fd.get(), &table, sizeof table, patience));
  *answered = true;
  const wire::HeaderFault fault = wire::CheckHeader(&table, sizeof table, kTableMagic, kMajor, sizeof table);
  if (fault != wire::HeaderFault::kOk) {
    return Fail(ncclRemoteError, "rank %u: the root's answer %s: use one release on all ranks", join.rank,
                wire::HeaderFaultText(fault));
  }
  if (table.code != ncclSuccess) {
    table.text[sizeof table.text - 1] = '\0';
    const bool known = table.code < ncclNumResults;
    return {known ? static_cast<ncclResult_t>(table.code) : ncclRemoteError, table.text};
  }
  if (table.rank_count != join.rank_count) {
    return Fail(ncclRemoteError, "rank %u: the root answered for %u ranks instead of %u", join.rank,
                table.rank_count, join.rank_count);
  }
  *key = StreamKey(id.secret, table.session);
  all->resize(join.rank_count);
  return PatientReceive(fd.get(), all->data(), all->size() * sizeof(RankInfo), patience);
}

Join MakeJoin(const UniqueId& id, int rank, int rank_count, const RankInfo& info) {
  Join join{};
  join.header.magic = kJoinMagic;
  join.header.major = kMajor;
  join.header.minor = kMinor;
  join.header.endian = wire::kEndianMark;
  join.header.header_bytes = sizeof join;
  join.header.total_bytes = sizeof join;
  join.header.writer = info.process;
  join.header.writer.reserved = 0;
  memcpy(join.nonce, id.nonce, sizeof join.nonce);
  join.rank = static_cast<uint32_t>(rank);
  join.rank_count = static_cast<uint32_t>(rank_count);
  join.info = info;
  join.knobs.slice_bytes = static_cast<uint32_t>(KnobNumber(Knob::C4_SLICE_BYTES));
  join.knobs.channels = static_cast<uint16_t>(KnobNumber(Knob::C4_CHANNELS));
  join.knobs.algorithm = KnobChoiceNumber(Knob::C4_ALGORITHM);
  SignJoin(&join, id.secret);
  return join;
}

// `fixed`: the root's address when it is given, and not opened here.
Result MakeId(const std::string& fixed, ncclUniqueId* id) {
  CloseStreamsInChildren();
  UniqueId made{};
  made.magic = kIdMagic;
  made.major = kIdMajor;
  made.minor = kIdMinor;
  SocketAddress address;
  if (!fixed.empty()) {
    const Result parsed = ParseAddress(fixed, &address);
    if (!parsed.ok()) return Fail(ncclInvalidUsage, "NCCL_COMM_ID: %s", parsed.message().c_str());
    made.flags = kIdFromEnvironment;
    const uint64_t halves[] = {HashBytes(fixed.data(), fixed.size()),
                               HashBytes(fixed.data(), fixed.size(), 1)};
    memcpy(made.nonce, halves, sizeof made.nonce);
  } else {
    if (!FillRandom(made.nonce, sizeof made.nonce) || !FillRandom(made.secret, sizeof made.secret)) {
      return Fail(ncclSystemError, "the kernel gave no random bytes");
    }
    C4_RETURN_IF_ERROR(InterfaceAddress(KnobText(Knob::NCCL_SOCKET_IFNAME), &address));
    C4_RETURN_IF_ERROR(StartRoot(&address, made, {.deadline = 0}));
  }
  made.root = ToEndpoint(address);
  made.check = Check(made);
  memcpy(id, &made, sizeof made);
  return Ok();
}

}  // namespace

Result MakeUniqueId(ncclUniqueId* id) {
  return MakeId(KnobText(Knob::NCCL_COMM_ID), id);
}

Result MakePrivateId(ncclUniqueId* id) {
  return MakeId("", id);
}

// To be the only rank of it makes the root answer, and end. Destructors call it: it never throws.
void ForgetId(const UniqueId& id) {
  if ((id.flags & kIdFromEnvironment) != 0) return;
  const Result ignored = Caught([&id] {
    std::vector<RankInfo> all;
    bool answered = false;
    const Patience patience{.deadline = MonotonicNs() + kForgetNs};
    Sha256Digest key;
    return JoinOnce(id, MakeJoin(id, 0, 1, {}), patience, &all, &answered, &key);
  });
  (void)ignored;  // it has ended already, or ends with its time
}

Result ReadUniqueId(const ncclUniqueId& id, UniqueId* read) {
  memcpy(read, &id, sizeof *read);
  if (read->magic != kIdMagic) {
    return Fail(
        ncclInvalidArgument,
        "the unique id was not made by C4's host engine: use ncclGetUniqueId of this library on one rank and "
        "send the id to the others");
  }
  if (read->major != kIdMajor) {
    return Fail(ncclInvalidUsage,
                "the unique id has version %u, this library reads %u: use one release on all ranks",
                read->major, kIdMajor);
  }
  if (read->check != Check(*read)) {
    return Fail(ncclInvalidArgument,
                "the unique id is damaged: it was not sent whole from the rank that made it");
  }
  return Ok();
}

uint64_t CommunicatorId(const UniqueId& id, int rank) {
  uint64_t use = 0;
  if ((id.flags & kIdFromEnvironment) != 0) {
    static std::mutex mutex;
    static auto* const uses = new std::map<std::pair<uint64_t, int>, uint64_t>();
    const std::lock_guard<std::mutex> lock(mutex);
    use = (*uses)[{id.check, rank}]++;
  }
  return HashBytes(&id, sizeof id, use);
}

Result JoinAll(const UniqueId& id, int rank, int rank_count, const RankInfo& info, DeadlineNs deadline,
               std::vector<RankInfo>* all, const std::atomic<bool>* cancelled, Sha256Digest* key) {
  Sha256Digest unused;
  if (key == nullptr) key = &unused;
  CloseStreamsInChildren();
  const Patience patience{deadline, cancelled, {}};
  const bool from_environment = (id.flags & kIdFromEnvironment) != 0;
  if (from_environment && rank == 0) {
    SocketAddress address = FromEndpoint(id.root);
    C4_RETURN_IF_ERROR(StartRoot(&address, id, {MonotonicNs() + kPortPatienceNs, cancelled, {}}));
  }
  const Join join = MakeJoin(id, rank, rank_count, info);
  for (;;) {
    bool answered = false;
    Result result = JoinOnce(id, join, patience, all, &answered, key);
    if (result.ok()) return result;
    if (answered) return result;
    // With NCCL_COMM_ID one port serves one root after the other: a connection that the last one still took
    // is closed unanswered when it ends, and the next root is about to open.
    if (!from_environment || result.code() != ncclRemoteError || MonotonicNs() >= deadline) {
      return Fail(result.code(), "rank %d could not join at the root %s: %s", rank,
                  FromEndpoint(id.root).ToString().c_str(), result.message().c_str());
    }
    Pause();
  }
}

}  // namespace c4::bootstrap
