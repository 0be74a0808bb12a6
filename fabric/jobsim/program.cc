#include "fabric/jobsim/program.h"

#include <algorithm>

namespace c4::jobsim {
namespace {

constexpr int64_t kSmallNs = 2 * kMillisecondNs;  // an all-reduce of a few numbers
constexpr uint32_t kBuckets = 2;                  // of gradients, where they overlap

class Writer {
 public:
  Writer(const Shape& shape, uint32_t stage) : shape_(shape), stage_(stage) {}

  void Pass(bool forward) {
    // Forward, messages go to the next stage; backward, to the one before.
    const bool receives = forward ? stage_ > 0 : stage_ + 1 < shape_.pipeline;
    const bool sends = forward ? stage_ + 1 < shape_.pipeline : stage_ > 0;
    if (receives) Message(Work::kReceive, forward ? stage_ - 1 : stage_ + 1);
    last_compute_ = Compute(shape_.forward_ns * (forward ? 1 : 2));
    if (shape_.expert > 1) Collective(Work::kAllToAll, Role::kExpert, shape_.expert_ns, 2);
    Collective(Work::kAllReduce, Role::kTensor, shape_.tensor_ns, 2);
    if (shape_.expert > 1) Collective(Work::kAllToAll, Role::kExpert, shape_.expert_ns, 2);
    if (sends) Message(Work::kSend, forward ? stage_ + 1 : stage_ - 1);
  }

  // With ZeRO, each replica holds a part of the parameters.
  void Gather() {
    if (!shape_.zero) return;
    Collective(Work::kAllGather, Role::kData, shape_.gradients_ns / 2, Chunks(shape_.gradients_ns / 2));
  }

  void Gradients() {
    const Work work = shape_.zero ? Work::kReduceScatter : Work::kAllReduce;
    const int64_t all_ns = shape_.zero ? shape_.gradients_ns / 2 : shape_.gradients_ns;
    const uint32_t buckets = shape_.overlaps ? kBuckets : 1;
    for (uint32_t i = 0; i < buckets; ++i) {
      Collective(work, Role::kData, all_ns / buckets, Chunks(all_ns / buckets));
      if (!shape_.overlaps) continue;
      // The first bucket is ready before the last kernels of the backward pass are.
      Instruction& bucket = program_.instructions.back();
      bucket.stream = 1;
      bucket.after = i == 0 ? last_compute_ : static_cast<int32_t>(program_.instructions.size()) - 3;
    }
  }

  // The optimizer needs all gradients.
  void Finish(bool optimizer) {
    const auto last = static_cast<int32_t>(program_.instructions.size()) - 1;
    const int32_t after = last < 0 || program_.instructions.back().stream == 0 ? -1 : last;
    if (shape_.world_reduce) Collective(Work::kAllReduce, Role::kWorld, kSmallNs, 1);
    if (optimizer) Compute(shape_.forward_ns / 4);
    if (last + 1 < static_cast<int32_t>(program_.instructions.size()))
      program_.instructions[static_cast<size_t>(last) + 1].after = after;
  }

  Program Take() {
    for (uint32_t i = 0; i < program_.instructions.size(); ++i) {
      program_.on_stream[program_.instructions[i].stream].push_back(i);
    }
    return std::move(program_);
  }

 private:
  static uint32_t Chunks(int64_t duration_ns) {
    return static_cast<uint32_t>(std::clamp<int64_t>(duration_ns / (8 * kMillisecondNs), 3, 64));
  }

  int32_t Compute(int64_t duration_ns) {
    program_.instructions.push_back({.work = Work::kCompute, .duration_ns = duration_ns});
    return static_cast<int32_t>(program_.instructions.size()) - 1;
  }

  void Message(Work work, uint32_t peer) {
    program_.instructions.push_back({.work = work,
                                     .role = Role::kPipeline,
                                     .peer = peer,
                                     .chunks = 4,
                                     .duration_ns = shape_.transfer_ns});
  }

  void Collective(Work work, Role role, int64_t duration_ns, uint32_t chunks) {
    program_.instructions.push_back(
        {.work = work, .role = role, .chunks = chunks, .duration_ns = duration_ns});
  }

  const Shape& shape_;
  const uint32_t stage_;
  int32_t last_compute_ = -1;
  Program program_;
};

}  // namespace

Program TrainingStep(const Shape& shape, uint32_t stage) {
  Writer writer(shape, stage);
  writer.Gather();
  const uint32_t ahead = std::min(shape.micro_batches, shape.pipeline - stage - 1);
  for (uint32_t i = 0; i < ahead; ++i) writer.Pass(true);
  for (uint32_t i = ahead; i < shape.micro_batches; ++i) {
    writer.Pass(true);
    writer.Pass(false);
  }
  for (uint32_t i = 0; i < ahead; ++i) writer.Pass(false);
  writer.Gradients();
  writer.Finish(/*optimizer=*/true);
  return writer.Take();
}

Program EvaluationStep(const Shape& shape, uint32_t stage) {
  Writer writer(shape, stage);
  writer.Gather();
  for (uint32_t i = 0; i < shape.evaluation_batches; ++i) writer.Pass(true);
  writer.Finish(/*optimizer=*/false);
  return writer.Take();
}

int64_t NominalStepNs(const Shape& shape) {
  const int64_t exchange_ns =
      (shape.tensor > 1 ? shape.tensor_ns : 0) + (shape.expert > 1 ? 2 * shape.expert_ns : 0);
  const int64_t pass_ns =
      3 * shape.forward_ns + 2 * exchange_ns + 2 * (shape.pipeline > 1 ? shape.transfer_ns : 0);
  return (shape.micro_batches + shape.pipeline - 1) * pass_ns + shape.gradients_ns + shape.data_ns;
}

}  // namespace c4::jobsim
