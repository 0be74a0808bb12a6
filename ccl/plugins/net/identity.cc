#include "ccl/plugins/net/identity.h"

#include <mutex>

#include "ccl/base/fork.h"
#include "ccl/monitor/observed.h"

namespace c4::net {
namespace {

struct State {
  std::mutex mutex;
  const uint64_t forks = Forks();
  int users = 0;
  CommunicatorRecorder recorder;
  Identity identity;
};

// The child of a fork begins anew: the mutex may be held by a thread that it does not have.
State* TheState() {
  static std::atomic<State*> current{new State};
  State* state = current.load(std::memory_order_acquire);
  if (state->forks == Forks()) return state;
  auto* const made = new State;
  if (current.compare_exchange_strong(state, made, std::memory_order_acq_rel)) return made;
  delete made;
  return state;
}

Identity Open(CommunicatorRecorder* recorder) {
  Identity identity;
  identity.monitor = &Monitor::Get();
  const JobIdentity job = ReadJobIdentity();
  CommunicatorIdentity first;
  CommunicatorIdentity communicator;
  // An id that is the same on all ranks of the job. Where the launcher names neither job nor ranks, the first
  // communicator does, which is the world in practice.
  if (job.rank >= 0 && job.world > job.rank) {
    identity.rank = job.rank;
    identity.rank_count = job.world;
    communicator.id = HashBytes(job.name.data(), job.name.size(), job.incarnation);
  } else if (ObservedCommunicators::Get().First(&first)) {
    identity.rank = first.rank;
    identity.rank_count = first.rank_count;
    communicator.id = HashBytes(&first.id, sizeof first.id, job.incarnation);
  } else {
    // Loaded by NCCL itself, without our front door: nobody tells who this is, so it is one of its own.
    const wire::ProcessIdentity process = CurrentProcess();
    communicator.id = HashBytes(&process, sizeof process);
    identity.rank_count = 1;
  }
  communicator.rank = identity.rank;
  communicator.rank_count = identity.rank_count;
  communicator.engine = wire::kEngineVendor;
  communicator.name = "net";
  *recorder = identity.monitor->OpenCommunicator(communicator);
  recorder->Ready();
  identity.communicator = recorder;
  return identity;
}

}  // namespace

Identity TakeIdentity() {
  State* const state = TheState();
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (state->users++ == 0) state->identity = Open(&state->recorder);
  return state->identity;
}

void GiveIdentityBack() {
  State* const state = TheState();
  const std::lock_guard<std::mutex> lock(state->mutex);
  if (state->users > 0 && --state->users == 0) {
    state->identity.monitor->CloseCommunicator(&state->recorder, wire::kPhaseDestroyed);
  }
}

}  // namespace c4::net
