// What PyTorch waits for: one call of the group. Either a place in a channel's order, which whoever waits
// drives itself, or something that a mailbox's thread ends.
//
// The ledger of a group keeps the work under way, so that tensors live as long as they are written, and its
// time-outs. Any thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "channel.h"

namespace c4_torch {

class Ledger;

struct Call {
  c10d::OpType type;
  const char* title;  // c4:all_reduce
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  std::chrono::milliseconds timeout;
  uint64_t sequence = 0;
};

class GroupWork final : public c10d::Work {
 public:
  GroupWork(int rank, const Call& call, std::shared_ptr<Ledger> ledger);

  // Before it is handed to anybody: the place in the channel's order, and what is left to do after it.
  void Place(std::shared_ptr<Channel> channel, Event event, std::function<void()> finish);
  // Before it is handed to anybody: what is left to do once it has succeeded.
  void Finish(std::function<void()> finish) { finish_ = std::move(finish); }
  // Before it is handed to anybody: what ends it when its time is up. A placed one aborts its channel.
  void OnExpiry(std::function<void(const std::string&)> expire) { expire_ = std::move(expire); }

  // It is over: empty `failure` is success. Only the first call counts.
  void Settle(const std::string& failure);
  // Settles it where the channel is through with it.
  void Poll();
  // Waits as a caller does, and throws nothing.
  void Drive();
  void Expire();

  bool settled() const { return settled_.load(std::memory_order_acquire); }
  Deadline deadline() const { return deadline_; }
  std::string Describe() const;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return timeout_; }
  uint64_t getCompletionKey() const override { return key_; }
  int sourceRank() const override { return source_; }
  void set_source(int rank) { source_ = rank; }

 private:
  void Await(std::chrono::milliseconds timeout);
  void SettlePlaced();

  const std::shared_ptr<Ledger> ledger_;
  const char* const title_;
  std::vector<at::Tensor> inputs_;
  const std::vector<at::Tensor> outputs_;
  const std::chrono::milliseconds timeout_;
  const Deadline began_ = std::chrono::steady_clock::now();
  const Deadline deadline_;
  const uint64_t sequence_;
  const uint64_t key_;
  std::shared_ptr<Channel> channel_;
  std::optional<Event> event_;
  std::function<void()> finish_;
  std::function<void(const std::string&)> expire_;
  int source_ = -1;
  std::atomic<bool> settling_{false};
  std::atomic<bool> settled_{false};
  std::atomic<int64_t> duration_ns_{0};
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // under mutex_ of the base
};

using WorkPtr = c10::intrusive_ptr<GroupWork>;

// The calls of a group that are under way.
class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  // Looks at it from now on, until it is gone.
  static std::shared_ptr<Ledger> Make();
  ~Ledger();

  void Add(WorkPtr work);
  // Somebody listens to the work's future: a thread of the ledger's waits for it.
  void Attend(WorkPtr work);
  // By the watch, ten times a second: settles what is over, and ends what is overdue.
  void Tick(Deadline now);
  bool HasPending();
  void Stop();

  void AddAbortHook(int64_t id, c10d::AbortHook hook);
  void RemoveAbortHook(int64_t id);
  void AddCompletionHook(int64_t id, c10d::CompletionHook hook);
  void RemoveCompletionHook(int64_t id);
  void RunAbortHooks();
  void RunCompletionHooks(const c10d::CompletionHookArgs& arguments);

 private:
  Ledger() = default;
  void AttendAll();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WorkPtr> pending_;
  std::deque<WorkPtr> attended_;
  bool attends_ = false;  // the thread runs
  bool stopped_ = false;
  std::map<int64_t, c10d::AbortHook> abort_hooks_;
  std::map<int64_t, c10d::CompletionHook> completion_hooks_;
};

// Several works as one: that of a coalescing manager.
class JointWork final : public c10d::Work {
 public:
  JointWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts)
      : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

}  // namespace c4_torch
