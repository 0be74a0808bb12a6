// One rank's end of a communicator on host memory: a queue of operations, its connections, and
// the thread, `c4-comm`, that drives both. Enqueue hands over and returns; the thread runs operations in
// the order of their streams. When a peer is lost or an operation fails, the communicator fails for good and
// closes its connections, so that the failure goes round the ring and every rank hears of it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "ccl/base/thread.h"
#include "ccl/bootstrap/bootstrap.h"
#include "ccl/engine/engine.h"
#include "ccl/engine/host/executor.h"
#include "ccl/engine/host/links.h"
#include "ccl/engine/host/plan.h"
#include "ccl/engine/host/stream.h"
#include "ccl/monitor/monitor.h"

namespace c4::host {

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Monitor* monitor, int rank, int rank_count);
  ~HostCommunicator() override;

  // Meets the other ranks and connects the ring; blocks.
  Result Init(const bootstrap::UniqueId& id, const std::string& name);

  uint64_t id() const override { return recorder_.slot().communicator_id; }
  int rank() const override { return rank_; }
  int rank_count() const override { return rank_count_; }
  uint64_t RecordCall(const Operation& operation) override;
  Result Supports(const Operation& operation) const override;
  Result Enqueue(const Operation* operations, size_t count) override;
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

  Result Connect(const bootstrap::UniqueId& id, const std::string& name);
  void Run();
  // The next operation; false when the thread is to end. Watches the connections meanwhile.
  bool Next(Pending* pending);
  void WatchPeers();
  Result Execute(const Pending& pending);
  Result RunCollective(const Entry& entry);
  Result RunTransfers(const Pending& pending);
  void Record(const Entry& entry, uint64_t started, uint64_t finished);
  void FailWith(const Result& result);
  void CloseConnections(bool in_order);
  void Wake();
  bool Ended() const;
  State End(State wanted);

  Monitor* const monitor_;
  const int rank_;
  const int rank_count_;
  const Plan plan_;
  CommunicatorRecorder recorder_;
  RingWriter ring_;
  Fd wake_;
  std::unique_ptr<Links> links_;
  std::unique_ptr<Executor> executor_;
  std::mutex end_mutex_;  // held while the thread is joined and its slot given back
  Thread thread_;

  mutable std::mutex mutex_;  // guards what follows
  std::deque<Pending> queue_;
  std::atomic<State> state_{State::kReady};
  Result failure_;
  uint64_t next_collective_ = 0;
  uint64_t next_transfer_ = 0;
};

}  // namespace c4::host
