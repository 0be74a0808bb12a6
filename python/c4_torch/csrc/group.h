// The backend `c4` of torch.distributed: a process group for tensors of the CPU over C4's host engine.
//
// Collectives run on one communicator, in the order of their calls, as NCCL's do; messages in mailboxes of
// their own. Calls return at once, but for the constructor, which waits until all ranks have joined. One
// thread at a time makes calls, as torch.distributed asks of every backend; work may be waited for anywhere.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "mailbox.h"
#include "tensors.h"

namespace c4_torch {

inline constexpr char kBackendName[] = "c4";

class Group final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Milliseconds = std::chrono::milliseconds;

  Group(c10::intrusive_ptr<c10d::Store> store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~Group() override;

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  bool supportsAbortHooks() const override { return true; }
  bool supportsCompletionHooks() const override { return true; }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override {
    ledger_->AddAbortHook(id, std::move(hook));
  }
  void unregisterAbortHook(int64_t id) override { ledger_->RemoveAbortHook(id); }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    ledger_->AddCompletionHook(id, std::move(hook));
  }
  void unregisterCompletionHook(int64_t id) override { ledger_->RemoveCompletionHook(id); }
  void setTimeout(Milliseconds timeout) override { options_->timeout = timeout; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  Work allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::AllgatherOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  Work scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  Work reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ReduceScatterOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                     std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;
  Work recvAnysource(Tensors& tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void startCoalescing() override;
  Work endCoalescing() override;
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  void abort() override;
  void shutdown() override;

 private:
  Milliseconds TimeoutOf(Milliseconds asked) const;
  Call NewCall(c10d::OpType type, const char* title, Tensors inputs, Tensors outputs, Milliseconds timeout);
  // `finish` runs once, after what was enqueued, in the thread that first learns of its end.
  Work Launch(const Call& call, const Channel::Enqueue& enqueue, std::function<void()> finish = {});
  // Where the library cannot reduce: all ranks' elements come here, `use` gets their reduction.
  Work LaunchGathered(const Call& call, const at::Tensor& input, const c10d::ReduceOp& op,
                      std::function<void(const at::Tensor&)> use);
  Work ReduceScatterFlat(Call call, const at::Tensor& output, const at::Tensor& input,
                         const c10d::ReduceOp& op);
  Work Done(Work work);
  // The sum of sparse tensors; waits until all ranks have told how many elements they have.
  Work ReduceSparse(Tensors& tensors, const c10d::AllreduceOptions& options);
  std::shared_ptr<Mailbox> MailboxOf(int peer, bool sends);
  // With several peers the first message from any of them is received.
  Work Mail(const char* title, bool sends, Tensors& tensors, const std::vector<int>& peers, int tag);
  // Several calls as one work.
  template <typename Each>
  Work Joint(size_t count, Each each);

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<Ledger> ledger_ = Ledger::Make();
  const pid_t process_ = getpid();
  std::shared_ptr<Channel> channel_;
  std::mutex mailboxes_mutex_;
  std::map<std::pair<int, bool>, std::shared_ptr<Mailbox>>
      mailboxes_;  // by peer, and whether this rank sends
  uint64_t sequence_ = 0;
  uint64_t monitored_ = 0;
  std::atomic<bool> left_{false};
  std::optional<std::vector<Work>> coalesced_;
};

}  // namespace c4_torch
