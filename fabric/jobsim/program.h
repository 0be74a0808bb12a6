// What a rank does in a step: its instructions in the order in which its CPU launches them, on two streams. A
// pipeline runs 1F1B: as many forward passes ahead as there are stages behind, then one forward, one
// backward.
//
// Plain values, made once for each stage. No threads.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/jobsim/job.h"
#include "fabric/jobsim/layout.h"

namespace c4::jobsim {

enum class Work : uint8_t { kCompute, kAllReduce, kReduceScatter, kAllGather, kAllToAll, kSend, kReceive };

inline constexpr uint32_t kStreams = 2;
inline constexpr uint64_t kChunkBytes = 512 << 10;

struct Instruction {
  Work work = Work::kCompute;
  Role role = Role::kTensor;
  uint8_t stream = 0;
  int32_t after = -1;   // another stream's instruction that has to be over
  uint32_t peer = 0;    // stage
  uint32_t chunks = 0;  // on each flow
  int64_t duration_ns = 0;

  bool is_collective() const {
    return work != Work::kCompute && work != Work::kSend && work != Work::kReceive;
  }
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<uint32_t> on_stream[kStreams];
};

Program TrainingStep(const Shape& shape, uint32_t stage);
// Forward passes alone.
Program EvaluationStep(const Shape& shape, uint32_t stage);

// About what a step takes with nothing wrong.
int64_t NominalStepNs(const Shape& shape);

}  // namespace c4::jobsim
