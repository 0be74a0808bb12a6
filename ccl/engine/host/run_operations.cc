// What a communicator does with the operations whose turn has come.
#include "ccl/base/clock.h"
#include "ccl/base/data_type.h"
#include "ccl/base/knobs.h"
#include "ccl/engine/host/communicator.h"
#include "ccl/engine/host/operations.h"

namespace c4::host {

Result HostCommunicator::Execute(const Pending& pending) {
  if (executor_ == nullptr) {
    ring_ = monitor_->LeaseRing();
    stage_ = std::make_unique<DeviceStage>(static_cast<size_t>(KnobNumber(Knob::C4_STAGE_BYTES)));
    executor_ = std::make_unique<Executor>(
        links_.get(), static_cast<size_t>(KnobNumber(Knob::C4_SLICE_BYTES)),
        static_cast<uint64_t>(KnobNumber(Knob::C4_TIMEOUT)) * 1000000000u, [this] { return Ended(); });
  }
  return IsTransfer(pending.front().operation.function) ? RunTransfers(pending)
                                                        : RunCollective(pending.front());
}

void HostCommunicator::Record(const Entry& entry, uint64_t started, uint64_t finished, Algorithm algorithm) {
  const Operation& operation = entry.operation;
  ring_.Operation(recorder_,
                  {entry.sequence, operation.called_ticks, started, finished, Info(operation, algorithm)});
}

const Plan& HostCommunicator::PlanOf(const Operation& operation, Algorithm* algorithm) {
  const size_t blocks = HasBlocks(operation.function) ? static_cast<size_t>(rank_count_) : 1;
  const size_t bytes = operation.count * blocks * ElementBytes(operation.data_type);
  if (last_.plan != nullptr && last_.function == operation.function && last_.root == operation.root &&
      last_.bytes == bytes) {
    *algorithm = last_.algorithm;
    return *last_.plan;
  }
  *algorithm = wanted_ != Algorithm::kAuto && Exists(wanted_, operation.function, *layout_)
                   ? wanted_
                   : Choose(operation.function, *layout_, bytes, Costs{});
  const auto [it, is_new] = plans_.try_emplace({operation.function, operation.root, *algorithm});
  if (is_new) {
    it->second = MakePlan(*algorithm, operation.function, *layout_, rank_, operation.root, channels_);
  }
  last_ = {operation.function, operation.root, bytes, *algorithm, &it->second};
  return it->second;
}

Result HostCommunicator::RunCollective(const Entry& entry) {
  const Operation& operation = entry.operation;
  Algorithm algorithm = Algorithm::kAuto;
  const Plan& plan = PlanOf(operation, &algorithm);
  const uint64_t started = NowTicks();
  recorder_.Started(Info(operation, algorithm), entry.stream->id(), started);
  Operation on_host = operation;
  C4_RETURN_IF_ERROR(stage_->Around(&on_host, 1, rank_, rank_count_,
                                    [&] { return executor_->Run(plan, WorkOf(on_host, rank_count_)); }));
  const uint64_t finished = NowTicks();
  recorder_.Finished(entry.stream->id(), finished);
  Record(entry, started, finished, algorithm);
  return Ok();
}

Result HostCommunicator::RunTransfers(const Pending& pending) {
  const uint64_t started = NowTicks();
  std::vector<Operation> operations;
  operations.reserve(pending.size());
  for (const Entry& entry : pending) {
    recorder_.P2pStarted(Info(entry.operation, Algorithm::kAuto), entry.stream->id(), started);
    operations.push_back(entry.operation);
  }
  return stage_->Around(operations.data(), operations.size(), rank_, rank_count_, [&] {
    std::vector<Transfer> transfers;
    transfers.reserve(operations.size());
    for (const Operation& operation : operations) {
      transfers.push_back({operation.function == wire::kSend, operation.root, operation.send_buffer,
                           operation.recv_buffer, operation.count * ElementBytes(operation.data_type)});
    }
    return executor_->Run(transfers, rank_, [&](size_t i) {
      const uint64_t finished = NowTicks();
      recorder_.P2pFinished(pending[i].stream->id(), finished);
      Record(pending[i], started, finished, Algorithm::kAuto);
    });
  });
}

}  // namespace c4::host
