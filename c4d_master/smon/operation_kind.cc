#include "c4d_master/smon/operation_kind.h"

#include "c4/v1/telemetry.pb.h"

namespace c4::c4d {
namespace {

using Kind = OperationVerdict::Kind;
using whatif::OperationType;

OperationVerdict Typed(OperationType type) {
  OperationVerdict verdict;
  verdict.kind = Kind::kTyped;
  verdict.type = type;
  return verdict;
}

OperationVerdict Of(Kind kind) {
  OperationVerdict verdict;
  verdict.kind = kind;
  return verdict;
}

// A send or receive between two stages. The next stage is where forward sends go to; with virtual stages the
// first one comes after the last.
OperationVerdict JudgeTransfer(const CommunicationSpan& operation, int peer_stage,
                               const DeclaredWorker& worker, const WorkerSteps::Step& step) {
  const bool send = operation.function == v1::FUNCTION_SEND;
  const bool wraps = worker.vpp_size > 1;
  const int stages = worker.pp_size;
  const bool next = wraps ? peer_stage == (worker.stage + 1) % stages : peer_stage == worker.stage + 1;
  const bool previous =
      wraps ? peer_stage == (worker.stage + stages - 1) % stages : peer_stage == worker.stage - 1;
  if (!next && !previous) return Of(Kind::kOther);
  bool forward = send == next;
  bool guessed = false;
  if (next && previous) {
    // Both are the same stage: a send belongs to what was computed before it, a receive to what is next.
    const MarkedSpan* const computation = send ? WorkerSteps::ComputedBefore(step, operation.called_ns)
                                               : WorkerSteps::ComputedAfter(step, operation.called_ns);
    if (computation == nullptr) return Of(Kind::kOther);
    forward = computation->kind == MarkKind::kForwardCompute;
    guessed = true;
  }
  OperationVerdict verdict =
      Typed(forward ? (send ? OperationType::kForwardSend : OperationType::kForwardRecv)
                    : (send ? OperationType::kBackwardSend : OperationType::kBackwardRecv));
  verdict.guessed = guessed;
  const MarkedSpan* const around = WorkerSteps::Around(step, operation.called_ns);
  verdict.in_computation = around != nullptr && IsComputation(around->kind) &&
                           operation.called_ns > around->began_ns && operation.ended_ns <= around->ended_ns;
  return verdict;
}

// A collective among data-parallel ranks of one stage. Gradients are what is summed once the backward pass
// has begun, until the optimizer is done.
OperationVerdict JudgeData(const CommunicationSpan& operation, const WorkerSteps::Step& step) {
  if (operation.function == v1::FUNCTION_ALL_GATHER) return Typed(OperationType::kParamsAllGather);
  if (operation.function != v1::FUNCTION_REDUCE_SCATTER && operation.function != v1::FUNCTION_ALL_REDUCE) {
    return Of(Kind::kOther);
  }
  const MarkedSpan* const first = WorkerSteps::First(step, MarkKind::kBackwardCompute);
  const MarkedSpan* const optimizer = WorkerSteps::Last(step, MarkKind::kOptimizer);
  if (first == nullptr || operation.called_ns < first->began_ns) return Of(Kind::kOther);
  if (optimizer != nullptr && operation.called_ns >= optimizer->ended_ns) return Of(Kind::kOther);
  return Typed(OperationType::kGradsReduceScatter);
}

bool IsBehindComputations(const CommunicationSpan& operation, const WorkerSteps::Step& step) {
  const MarkedSpan* const last = WorkerSteps::Last(step, MarkKind::kBackwardCompute);
  const MarkedSpan* const optimizer = WorkerSteps::Last(step, MarkKind::kOptimizer);
  return last != nullptr && operation.called_ns >= last->ended_ns &&
         (optimizer == nullptr || operation.called_ns < optimizer->began_ns);
}

}  // namespace

OperationVerdict JudgeOperation(const CommunicationSpan& operation, const RoledCommunicator& communicator,
                                const DeclaredWorker& worker, const WorkerSteps::Step& step) {
  if (communicator.role == CommunicatorRole::kUnknown) {
    return Of(communicator.rank_count == 1 ? Kind::kWithin : Kind::kUnknown);
  }
  const MarkedSpan* const around = WorkerSteps::Around(step, operation.called_ns);
  if (around != nullptr && !IsComputation(around->kind)) return Of(Kind::kWithin);
  const bool all_reduce = operation.function == v1::FUNCTION_ALL_REDUCE;
  if (communicator.role == CommunicatorRole::kInWorker) {
    // Of a tensor group, whose layer norms are the same on all ranks.
    return all_reduce && around == nullptr && worker.tp_size > 1 && IsBehindComputations(operation, step)
               ? Typed(OperationType::kLayernormGradsAllReduce)
               : Of(Kind::kWithin);
  }
  if (operation.function == v1::FUNCTION_SEND || operation.function == v1::FUNCTION_RECV) {
    const auto peer = operation.root < 0 ? communicator.members.end()
                                         : communicator.members.find(static_cast<uint32_t>(operation.root));
    if (peer == communicator.members.end()) return Of(Kind::kUnknown);
    // A world-wide communicator may join stages, too: it is the two ends that count.
    if (peer->second->dp_rank != worker.dp_rank) return Of(Kind::kOther);
    if (peer->second->stage == worker.stage) return Of(Kind::kWithin);
    return JudgeTransfer(operation, peer->second->stage, worker, step);
  }
  if (communicator.role == CommunicatorRole::kData) return JudgeData(operation, step);
  if (communicator.outer_stages && all_reduce && IsBehindComputations(operation, step)) {
    return Typed(OperationType::kEmbeddingGradsAllReduce);
  }
  return Of(Kind::kOther);
}

}  // namespace c4::c4d
