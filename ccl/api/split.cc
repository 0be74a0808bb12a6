#include "ccl/api/split.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ccl/api/checks.h"
#include "ccl/api/config.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/tasks.h"

namespace c4::api {
namespace {

// What the first rank of a new communicator tells the others; those that are no first rank leave it empty.
struct Invitation {
  uint32_t code;  // ncclResult_t: whether it could make the id
  uint32_t reserved;
  uint64_t number;  // splits and shrinks of the parent before this one, as that rank counts them
  ncclUniqueId id;
  char text[112];
};
static_assert(sizeof(Invitation) == 256);

// An id that goes away again unless it is used.
class MadeId {
 public:
  MadeId() = default;
  MadeId(const MadeId&) = delete;
  MadeId& operator=(const MadeId&) = delete;
  ~MadeId() {
    if (engine_ != nullptr) engine_->ForgetId(id_);
  }

  void Make(Engine* engine, uint64_t number, Invitation* invitation) {
    const Result result = engine->GetPrivateId(&id_);
    invitation->code = result.code();
    invitation->number = number;
    invitation->id = id_;
    const std::string& text = result.message();
    memcpy(invitation->text, text.data(), std::min(text.size(), sizeof invitation->text - 1));
    if (result.ok()) engine_ = engine;
  }
  void Used() { engine_ = nullptr; }

 private:
  Engine* engine_ = nullptr;
  ncclUniqueId id_{};
};

Result CheckInvitation(const Invitation& invitation, int rank) {
  if (invitation.code == ncclSuccess) return Ok();
  const auto code =
      invitation.code < ncclNumResults ? static_cast<ncclResult_t>(invitation.code) : ncclInternalError;
  const std::string text(invitation.text, strnlen(invitation.text, sizeof invitation.text));
  return Fail(code, "rank %d of the parent could not make the new communicator's id: %s", rank, text.c_str());
}

// A call on a parent, from its checks to its task.
struct Family {
  SharedPin parent;
  Engine* engine = nullptr;
  uint64_t parent_id = 0;
  uint64_t number = 0;
  CommunicatorSettings settings;
  bool blocking = true;  // of the parent

  Communicator& communicator() const { return *(*parent)->communicator; }
  bool child_blocking() const { return settings.blocking.value_or(blocking); }
};

Result Begin(ncclComm_t comm, const ncclConfig_t* config, bool also_failed, Family* family) {
  family->parent = std::make_shared<Pin>(comm);
  if (!*family->parent) return BadHandle(comm);
  C4_RETURN_IF_ERROR(ReadConfig(config, &family->settings));
  Entry& entry = **family->parent;
  const std::lock_guard<std::mutex> lock(entry.call_mutex);
  C4_RETURN_IF_ERROR(also_failed ? CheckReady(entry) : CheckAlive(entry));
  if (entry.phase == Phase::kFinalizing || entry.phase == Phase::kFinalized) {
    return Fail(ncclInvalidArgument, "the communicator was finalized: nothing is made of it any more");
  }
  family->engine = entry.engine;
  family->blocking = entry.blocking;
  family->parent_id = entry.communicator->id();
  family->number = entry.children++;
  return Ok();
}

// Joins the child: `part` are its ranks, as ranks of the parent.
Result JoinPart(const Family& family, const std::vector<int>& part, const Invitation& invitation, int colour,
                const std::atomic<bool>* cancelled, std::unique_ptr<Communicator>* communicator) {
  const Communicator& parent = family.communicator();
  const auto self = std::find(part.begin(), part.end(), parent.rank());
  InitRequest request;
  request.rank_count = static_cast<int>(part.size());
  request.rank = static_cast<int>(self - part.begin());
  request.id = invitation.id;
  request.name = family.settings.name;
  request.parent_id = family.parent_id;
  request.split_number = invitation.number;
  request.colour = colour;
  request.cancelled = cancelled;
  return family.engine->InitRank(request, communicator);
}

Result RunSplit(const Family& family, const SplitWish& wish, const std::atomic<bool>* cancelled,
                std::unique_ptr<Communicator>* communicator) {
  Communicator& parent = family.communicator();
  std::vector<int> ranks(static_cast<size_t>(parent.rank_count()));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  std::vector<SplitWish> wishes(ranks.size());
  C4_RETURN_IF_ERROR(parent.GatherRecordsAmong(ranks, &wish, sizeof wish, wishes.data(), cancelled));

  const bool takes_part = wish.colour != NCCL_SPLIT_NOCOLOR;
  const std::vector<int> part = takes_part ? PartOf(wishes, wish.colour) : std::vector<int>{};
  MadeId made;
  Invitation mine{};
  if (takes_part && part.front() == parent.rank()) made.Make(family.engine, family.number, &mine);
  std::vector<Invitation> all(ranks.size());
  C4_RETURN_IF_ERROR(parent.GatherRecordsAmong(ranks, &mine, sizeof mine, all.data(), cancelled));
  for (const int rank : ranks) C4_RETURN_IF_ERROR(CheckInvitation(all[static_cast<size_t>(rank)], rank));
  if (!takes_part) return Ok();
  made.Used();
  return JoinPart(family, part, all[static_cast<size_t>(part.front())], wish.colour, cancelled, communicator);
}

Result RunShrink(const Family& family, const std::vector<int>& part, bool revoke,
                 const std::atomic<bool>* cancelled, std::unique_ptr<Communicator>* communicator) {
  Communicator& parent = family.communicator();
  if (revoke) parent.Revoke();
  MadeId made;
  Invitation mine{};
  if (part.front() == parent.rank()) made.Make(family.engine, family.number, &mine);
  std::vector<Invitation> all(part.size());
  C4_RETURN_IF_ERROR(parent.GatherRecordsAmong(part, &mine, sizeof mine, all.data(), cancelled));
  C4_RETURN_IF_ERROR(CheckInvitation(all.front(), part.front()));
  made.Used();
  // Parts that shrink apart from each other have other first ranks; no split has a colour below -1.
  return JoinPart(family, part, all.front(), -2 - part.front(), cancelled, communicator);
}

Result CheckExcluded(const int* excluded, int excluded_count, const Communicator& parent,
                     std::vector<int>* part) {
  if (excluded_count < 0) {
    return Fail(ncclInvalidArgument, "excludeRanksCount = %d is negative", excluded_count);
  }
  if (excluded_count > 0) C4_RETURN_IF_ERROR(CheckNotNull(excluded, "excludeRanksList"));
  std::vector<bool> out(static_cast<size_t>(parent.rank_count()));
  for (int i = 0; i < excluded_count; ++i) {
    const int rank = excluded[i];
    if (rank < 0 || rank >= parent.rank_count()) {
      return Fail(ncclInvalidArgument,
                  "excludeRanksList[%d] = %d is not a rank of the communicator (0 to %d are)", i, rank,
                  parent.rank_count() - 1);
    }
    if (out[static_cast<size_t>(rank)]) {
      return Fail(ncclInvalidArgument, "excludeRanksList names rank %d twice", rank);
    }
    if (rank == parent.rank()) {
      return Fail(ncclInvalidArgument,
                  "excludeRanksList names the calling rank %d: only the ranks that stay make the call", rank);
    }
    out[static_cast<size_t>(rank)] = true;
  }
  for (int rank = 0; rank < parent.rank_count(); ++rank) {
    if (!out[static_cast<size_t>(rank)]) part->push_back(rank);
  }
  return Ok();
}

}  // namespace

std::vector<int> PartOf(const std::vector<SplitWish>& wishes, int colour) {
  std::vector<int> part;
  for (size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].colour == colour) part.push_back(static_cast<int>(rank));
  }
  std::stable_sort(part.begin(), part.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return part;
}

Result Split(ncclComm_t parent, int colour, int key, ncclComm_t* made, const ncclConfig_t* config) {
  C4_RETURN_IF_ERROR(CheckNotNull(made, "newcomm"));
  *made = nullptr;
  if (colour < 0 && colour != NCCL_SPLIT_NOCOLOR) {
    return Fail(ncclInvalidArgument, "color = %d is neither NCCL_SPLIT_NOCOLOR nor 0 or more", colour);
  }
  Family family;
  C4_RETURN_IF_ERROR(Begin(parent, config, false, &family));
  Task task;
  task.call = "ncclCommSplit";
  task.parent = family.parent;
  if (colour == NCCL_SPLIT_NOCOLOR) {
    task.cancelled = std::make_shared<std::atomic<bool>>(false);
  } else {
    task.place = made;
    C4_RETURN_IF_ERROR(Reserve(family.engine, family.child_blocking(), &task));
  }
  task.body = [family, colour, key](const std::atomic<bool>* cancelled,
                                    std::unique_ptr<Communicator>* communicator) {
    return RunSplit(family, {colour, key}, cancelled, communicator);
  };
  return Launch(std::move(task), family.blocking);
}

Result Shrink(ncclComm_t parent, const int* excluded, int excluded_count, ncclComm_t* made,
              const ncclConfig_t* config, int flags) {
  C4_RETURN_IF_ERROR(CheckNotNull(made, "newcomm"));
  *made = nullptr;
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT) {
    return Fail(ncclInvalidArgument, "shrinkFlags = %d: NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT are known",
                flags);
  }
  const bool revoke = flags == NCCL_SHRINK_ABORT;
  Family family;
  C4_RETURN_IF_ERROR(Begin(parent, config, revoke, &family));
  std::vector<int> part;
  C4_RETURN_IF_ERROR(CheckExcluded(excluded, excluded_count, family.communicator(), &part));
  if (revoke) {
    Entry& entry = **family.parent;
    const std::lock_guard<std::mutex> lock(entry.call_mutex);
    entry.revoked = true;
  }
  Task task;
  task.call = "ncclCommShrink";
  task.parent = family.parent;
  task.place = made;
  C4_RETURN_IF_ERROR(Reserve(family.engine, family.child_blocking(), &task));
  task.body = [family, part, revoke](const std::atomic<bool>* cancelled,
                                     std::unique_ptr<Communicator>* communicator) {
    return RunShrink(family, part, revoke, cancelled, communicator);
  };
  return Launch(std::move(task), family.blocking);
}

}  // namespace c4::api
