#include "examples/lm/groups.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "ccl/include/c4/stream.h"

namespace c4::examples::lm {
namespace {

constexpr int kMeetingTimeoutS = 120;

}  // namespace

Worker WorkerOf(const Layout& layout, int number) {
  return {number / (layout.tensor * layout.pipeline), number / layout.tensor % layout.pipeline,
          number % layout.tensor};
}

int NumberOf(const Layout& layout, const Worker& worker) {
  return (worker.replica * layout.pipeline + worker.stage) * layout.tensor + worker.tensor_rank;
}

bool Groups::Check(ncclResult_t code, const char* call, ncclComm_t comm) const {
  if (code == ncclSuccess) return true;
  // Who is gone, the library has said.
  const std::string sentence = code == ncclRemoteError ? "a peer is gone" : ncclGetLastError(comm);
  fprintf(stderr, "lm_trainer: rank %d: %s: %s\n", world_.rank, call,
          sentence.empty() ? ncclGetErrorString(code) : sentence.c_str());
  return false;
}

bool Groups::Wait(const char* call, ncclComm_t comm) const {
  return Check(c4StreamSynchronize(nullptr), call, comm);
}

bool Groups::Connect() {
  // It would be every communicator's. NOLINTNEXTLINE(concurrency-mt-unsafe): before any other thread
  unsetenv("NCCL_COMM_ID");
  ncclUniqueId id;
  if (!ShareUniqueId(world_, kMeetingTimeoutS, &id)) return false;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "world";
  ncclComm_t* const all = &comms_[static_cast<size_t>(Group::kAll)];
  return Check(ncclCommInitRankConfig(all, world_.size, id, world_.rank, &config), "ncclCommInitRankConfig",
               *all);
}

// The order of a group's ranks is that of the workers, wherever these are: so sums keep their order, too.
bool Groups::Join(const Layout& layout, const Worker& worker) {
  layout_ = layout;
  const struct {
    Group group;
    const char* name;
    int colour;
    int key;
  } groups[] = {
      {Group::kTensor, "tensor", worker.replica * layout.pipeline + worker.stage, worker.tensor_rank},
      {Group::kPipeline, "pipeline", worker.replica * layout.tensor + worker.tensor_rank, worker.stage},
      {Group::kData, "data", worker.stage * layout.tensor + worker.tensor_rank, worker.replica},
  };
  for (const auto& one : groups) {
    if (size(one.group) == 1) continue;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = one.name;
    ncclComm_t* const made = &comms_[static_cast<size_t>(one.group)];
    if (!Check(ncclCommSplit(Of(Group::kAll), one.colour, one.key, made, &config), "ncclCommSplit",
               Of(Group::kAll))) {
      return false;
    }
  }
  return true;
}

bool Groups::Split(const char* name, ncclComm_t* made) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = name;
  const ncclComm_t all = Of(Group::kAll);
  return Check(ncclCommSplit(all, 0, world_.rank, made, &config), "ncclCommSplit", all);
}

bool Groups::Part() {
  bool all = true;
  for (const Group group : {Group::kData, Group::kPipeline, Group::kTensor}) {
    ncclComm_t* const comm = &comms_[static_cast<size_t>(group)];
    all = Check(ncclCommDestroy(*comm), "ncclCommDestroy", *comm) && all;
    *comm = nullptr;
  }
  return all;
}

bool Groups::Disconnect() {
  const bool parted = Part();
  return Check(ncclCommDestroy(Of(Group::kAll)), "ncclCommDestroy", Of(Group::kAll)) && parted;
}

int Groups::size(Group group) const {
  switch (group) {
    case Group::kTensor:
      return layout_.tensor;
    case Group::kPipeline:
      return layout_.pipeline;
    case Group::kData:
      return layout_.data;
    case Group::kAll:
      break;
  }
  return world_.size;
}

bool Groups::AllReduce(void* values, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                       Group group) const {
  if (size(group) == 1) return true;
  return Check(ncclAllReduce(values, values, count, type, operation, Of(group), nullptr), "ncclAllReduce",
               Of(group)) &&
         Wait("ncclAllReduce", Of(group));
}

bool Groups::Sum(float* values, size_t count, Group group) const {
  return AllReduce(values, count, ncclFloat, ncclSum, group);
}

bool Groups::Reduce(uint64_t* values, size_t count, ncclRedOp_t operation, Group group) const {
  return AllReduce(values, count, ncclUint64, operation, group);
}

bool Groups::Exchange(const std::vector<float>& to, int to_stage, std::vector<float>* from,
                      int from_stage) const {
  return SendAndReceive(to, to_stage, from, from_stage, Group::kPipeline);
}

bool Groups::Swap(const std::vector<float>& to, int to_rank, std::vector<float>* from, int from_rank) const {
  return SendAndReceive(to, to_rank, from, from_rank, Group::kAll);
}

bool Groups::SendAndReceive(const std::vector<float>& to, int to_rank, std::vector<float>* from,
                            int from_rank, Group group) const {
  if (to.empty() && from->empty()) return true;
  const ncclComm_t comm = Of(group);
  if (!Check(ncclGroupStart(), "ncclGroupStart", comm)) return false;
  bool all = to.empty() ||
             Check(ncclSend(to.data(), to.size(), ncclFloat, to_rank, comm, nullptr), "ncclSend", comm);
  all = all &&
        (from->empty() ||
         Check(ncclRecv(from->data(), from->size(), ncclFloat, from_rank, comm, nullptr), "ncclRecv", comm));
  const bool ended = Check(ncclGroupEnd(), "ncclGroupEnd", comm);
  return all && ended && Wait("ncclSend and ncclRecv", comm);
}

}  // namespace c4::examples::lm
