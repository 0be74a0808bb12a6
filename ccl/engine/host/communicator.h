// One rank's end of a communicator on host memory: a queue of operations, its connections, and the thread,
// `c4-comm`, that drives both, unless a thread that waits for an operation does it first (Stream). Enqueue
// hands over and returns; operations run in the order of their streams. When a peer is lost or an operation
// fails, the communicator fails for good and closes its connections, so that the failure goes round the ring
// and every rank hears of it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ccl/base/thread.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/bootstrap/meeting.h"
#include "ccl/engine/engine.h"
#include "ccl/engine/host/device_stage.h"
#include "ccl/engine/host/executor.h"
#include "ccl/engine/host/links.h"
#include "ccl/engine/host/patrol.h"
#include "ccl/engine/host/plan.h"
#include "ccl/engine/host/stream.h"
#include "ccl/monitor/monitor.h"
#include "ccl/ras/member.h"

namespace c4::host {

class HostCommunicator final : public Communicator {
 public:
  // `paths` selects the paths of connections over TCP and outlives it; nullptr: the kernel does.
  HostCommunicator(Monitor* monitor, int rank, int rank_count, PathSelector* paths = nullptr);
  ~HostCommunicator() override;

  // Meets the other ranks and connects the ring; blocks, until it is cancelled.
  Result Init(const bootstrap::UniqueId& id, const InitRequest& request);
  // The same without a parent, and never cancelled.
  Result Init(const bootstrap::UniqueId& id, const std::string& name);

  uint64_t id() const override { return recorder_.slot().communicator_id; }
  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  uint64_t RecordCall(const Operation& operation) override;
  void TakeBackCall(const Operation& operation) override;
  Result Supports(const Operation& operation) const override;
  Result Enqueue(const Operation* operations, size_t count) override;
  Result GatherRecords(const void* mine, size_t bytes, void* all) override;
  Result GatherRecordsAmong(const std::vector<int>& ranks, const void* mine, size_t bytes, void* all,
                            const std::atomic<bool>* cancelled) override;
  void Revoke() override;
  Result Finalize() override;
  void Abort() override;
  Result AsyncError() const override;

 private:
  struct Entry {
    Operation operation;
    std::shared_ptr<Stream> stream;
    uint64_t ticket;
    uint64_t sequence;  // among the collectives, or among the sends and receives
  };
  // What runs at a time: one collective, or the sends and receives of one group.
  using Pending = std::vector<Entry>;
  enum class State { kReady, kFinalizing, kAborted, kFailed };
  // What streams hold on to: it outlives the communicator, and drives nothing then.
  class Wheel;

  Result Connect(const bootstrap::UniqueId& id, const InitRequest& request);
  Result ReadKnobs();
  // For NCCL's RAS: whom reports of the job may ask, and what this rank has done.
  void OpenRasSocket(const SocketAddress& listens, const bootstrap::RankInfo& info);
  void MakeRasMember(const std::vector<bootstrap::RankInfo>& ranks, const Sha256Digest& key);
  ras::State RasState() const;
  void Count(wire::Function function, int64_t calls);
  // As FindStream. By the thread that makes calls.
  std::shared_ptr<Stream> StreamOf(cudaStream_t handle) const;
  // Not Ok when a meeting of the ranks has no reason to go on.
  Result MayMeet() const;
  void Run();
  // Waits, and then does what there is to be done, unless somebody else does it.
  Result Turn();
  void Sleep();
  // Of the patrol (communicator_wheel.h): the timer is over. True when the thread has something to do.
  bool Look();
  // REQUIRES for what follows, down to FailWith: the wheel is held. Runs what is queued; with `enough`, only
  // as long as that is not so, and nothing whose turn has not come.
  void RunQueue(const std::function<bool()>* enough);
  // The next operation; false when there is none to be run now.
  bool Next(Pending* pending, bool wait);
  bool AwaitTurn(const Pending& pending, bool wait);
  Result Execute(const Pending& pending);
  Result RunCollective(const Entry& entry);
  Result RunTransfers(const Pending& pending);
  const Plan& PlanOf(const Operation& operation, Algorithm* algorithm);
  void Record(const Entry& entry, uint64_t started, uint64_t finished, Algorithm algorithm);
  void FailWith(const Result& result);
  void CloseConnections(bool in_order);
  void DropQueue();

  void Wake();
  // Has whoever drives and the thread look at the state.
  void Interrupt();
  bool Ended() const;
  State End(State wanted);
  // It fails, as FailWith, but for who does not hold the wheel: the thread closes the connections.
  void FailSoon(const Result& result);

  // Operations on their way into the queue.
  struct Staged {
    std::vector<Entry> collectives;
    Pending transfers;
    bool begun = false;  // tickets are taken: streams wait for these operations
  };
  Result EnqueueStaged(const Operation* operations, size_t count, Staged* staged);

  Monitor* const monitor_;
  PathSelector* const paths_;
  const int rank_;
  const int rank_count_;
  std::unique_ptr<Layout> layout_;
  Algorithm wanted_ = Algorithm::kAuto;
  int channels_ = 1;
  std::map<std::tuple<wire::Function, int, Algorithm>, Plan> plans_;
  // Of the last collective: programs repeat themselves.
  struct {
    wire::Function function = wire::kFunctionNone;
    int root = -1;
    size_t bytes = 0;
    Algorithm algorithm = Algorithm::kAuto;
    const Plan* plan = nullptr;
  } last_;
  CommunicatorRecorder recorder_;
  RingWriter ring_;
  mutable std::shared_ptr<Stream> last_stream_;
  Fd wake_;
  std::unique_ptr<bootstrap::Meeting> meeting_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<DeviceStage> stage_;
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<Wheel> wheel_;
  std::vector<pollfd> polls_;
  std::mutex end_mutex_;  // held while the thread is joined and its slot given back
  Thread thread_;
  std::shared_ptr<const ras::Member> ras_;  // registered once the rank has joined; nullptr: not in reports
  Fd ras_socket_;                           // until there is ras_
  // By ras::Kind; written by the thread that makes calls.
  std::array<std::atomic<uint64_t>, ras::kKinds> calls_{};

  mutable std::mutex mutex_;  // guards what follows
  std::deque<Pending> queue_;
  uint64_t queued_ = 0;             // that ever were in the queue
  std::atomic<size_t> waiting_{0};  // that are in there; read without the mutex, too
  Patrol patrol_;
  std::atomic<State> state_{State::kReady};
  Result failure_;
  bool revoked_ = false;
  uint64_t next_collective_ = 0;
  uint64_t next_transfer_ = 0;
};

}  // namespace c4::host
