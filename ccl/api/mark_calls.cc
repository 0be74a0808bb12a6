// The calls of ccl/include/c4/marks.h: arguments are checked here, MarkWriter does the rest. None fails the
// program: what makes no sense is said once and left out.
#include <atomic>
#include <cstring>

#include "ccl/api/export.h"
#include "ccl/base/log.h"
#include "ccl/control/hold.h"
#include "ccl/include/c4/marks.h"
#include "ccl/include/nccl.h"
#include "ccl/monitor/marks.h"

namespace c4 {
namespace {

static_assert(C4_FORWARD_COMPUTE == static_cast<int>(wire::kMarkForwardCompute));
static_assert(C4_BACKWARD_COMPUTE == static_cast<int>(wire::kMarkBackwardCompute));
static_assert(C4_OPTIMIZER == static_cast<int>(wire::kMarkOptimizer));
static_assert(C4_OPTIMIZER_CLIP_MAIN_GRAD == static_cast<int>(wire::kMarkOptimizerClipMainGrad));
static_assert(C4_GC == static_cast<int>(wire::kMarkGc));
// Programs that were built with this header hand over as many bytes.
constexpr size_t kFirstWorkerBytes = offsetof(c4Worker, layers) + sizeof(int);

// True the first time only.
bool First(std::atomic<bool>* said) {
  return !said->exchange(true, std::memory_order_relaxed);
}

// A size that was left at 0 is 1; false when rank or size is none.
bool Fit(int rank, int size, uint16_t* rank_field, uint16_t* size_field) {
  const int whole = size == 0 ? 1 : size;
  if (whole < 0 || whole > UINT16_MAX || rank < 0 || rank >= whole) return false;
  *rank_field = static_cast<uint16_t>(rank);
  *size_field = static_cast<uint16_t>(whole);
  return true;
}

// What is wrong with it; nullptr: nothing.
const char* PlaceOf(const c4Worker* worker, wire::WorkerPlace* place) {
  if (worker == nullptr) return "it is NULL";
  if (worker->size < kFirstWorkerBytes) return "its size is not sizeof(c4Worker)";
  if (!Fit(worker->dp_rank, worker->dp_size, &place->dp_rank, &place->dp_size)) {
    return "dp_rank is not below dp_size, or dp_size is above 65535";
  }
  if (!Fit(worker->stage, worker->pp_size, &place->stage, &place->pp_size)) {
    return "stage is not below pp_size, or pp_size is above 65535";
  }
  if (!Fit(worker->tp_rank, worker->tp_size, &place->tp_rank, &place->tp_size)) {
    return "tp_rank is not below tp_size, or tp_size is above 65535";
  }
  if (!Fit(worker->cp_rank, worker->cp_size, &place->cp_rank, &place->cp_size)) {
    return "cp_rank is not below cp_size, or cp_size is above 65535";
  }
  uint16_t none = 0;
  if (!Fit(0, worker->vpp_size, &none, &place->vpp_size)) return "vpp_size is none";
  if (worker->layers < 0 || worker->layers > UINT16_MAX) return "layers is below 0 or above 65535";
  place->layers = static_cast<uint16_t>(worker->layers);
  return nullptr;
}

}  // namespace
}  // namespace c4

C4_LATER int c4MarkWorker(const c4Worker* worker) {
  static std::atomic<bool> said{false};
  c4::wire::WorkerPlace place{};
  if (const char* const fault = c4::PlaceOf(worker, &place); fault != nullptr) {
    if (c4::First(&said)) C4_WARN("c4MarkWorker: %s; the worker is not known to the analysis", fault);
    return ncclInvalidArgument;
  }
  c4::MarkWriter::Get().Declare(place);
  return ncclSuccess;
}

C4_LATER uint64_t c4MarkBegin() {
  return c4::MarkWriter::Get().Begin();
}

C4_LATER void c4MarkOperation(int operation, int micro_batch, int chunk, uint64_t began) {
  static std::atomic<bool> said{false};
  if (began == 0) return;
  if (operation < C4_FORWARD_COMPUTE || operation > C4_GC || micro_batch < -1 || chunk < -1) {
    if (c4::First(&said)) {
      C4_WARN(
          "c4MarkOperation: operation %d, micro-batch %d, chunk %d: an operation is one of c4Operation, the "
          "others are 0 or more, or -1 for none; such marks are left out",
          operation, micro_batch, chunk);
    }
    return;
  }
  c4::wire::MarkRecord mark{};
  mark.kind = static_cast<uint32_t>(operation);
  mark.step = -1;
  mark.micro_batch = micro_batch;
  mark.chunk = chunk;
  c4::MarkWriter::Get().Write(mark, began);
}

C4_LATER void c4MarkStep(int64_t step, uint64_t began) {
  static std::atomic<bool> said{false};
  c4::Holder::Get().StepMarked();
  if (began == 0) return;
  if (step < 0 || step > INT32_MAX) {
    if (c4::First(&said)) {
      C4_WARN("c4MarkStep: %lld is no number of a step; such marks are left out",
              static_cast<long long>(step));
    }
    return;
  }
  c4::wire::MarkRecord mark{};
  mark.kind = c4::wire::kMarkStep;
  mark.step = step;
  mark.micro_batch = -1;
  mark.chunk = -1;
  c4::MarkWriter::Get().Write(mark, began);
}
