// 1F1B: each stage does each pass once, no stage waits for ever, and few activations are kept.
#include "examples/lm/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace c4::examples::lm {
namespace {

TEST(ScheduleTest, OfTwoStages) {
  EXPECT_THAT(OneForwardOneBackward(0, 2, 3),
              testing::ElementsAre(Pass{false, 0}, Pass{false, 1}, Pass{true, 0}, Pass{false, 2},
                                   Pass{true, 1}, Pass{true, 2}));
  EXPECT_THAT(OneForwardOneBackward(1, 2, 2),
              testing::ElementsAre(Pass{false, 0}, Pass{true, 0}, Pass{false, 1}, Pass{true, 1}));
}

// Does the passes of all stages, each as soon as its inputs are there; 0 where they do not all get done,
// else the most micro-batches that a stage had between forward and backward pass.
int MostKept(int stages, int micro_batches) {
  std::vector<std::vector<Pass>> passes;
  for (int stage = 0; stage < stages; ++stage) {
    passes.push_back(OneForwardOneBackward(stage, stages, micro_batches));
  }
  const auto last = static_cast<size_t>(stages) - 1;
  std::vector<size_t> at(passes.size(), 0);
  std::vector<int> forwards(passes.size(), 0);
  std::vector<int> backwards(passes.size(), 0);
  int most = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < passes.size(); ++stage) {
      if (at[stage] == passes[stage].size()) continue;
      const Pass pass = passes[stage][at[stage]];
      int* const done = pass.backward ? &backwards[stage] : &forwards[stage];
      if (pass.micro_batch != *done) return 0;  // out of order
      const bool ready = pass.backward ? *done < (stage == last ? forwards[stage] : backwards[stage + 1])
                                       : stage == 0 || *done < forwards[stage - 1];
      if (!ready) continue;
      ++*done;
      ++at[stage];
      moved = true;
      most = std::max(most, forwards[stage] - backwards[stage]);
    }
  }
  for (size_t stage = 0; stage < passes.size(); ++stage) {
    if (backwards[stage] != micro_batches || at[stage] != passes[stage].size()) return 0;
  }
  return most;
}

TEST(ScheduleTest, AllStagesComeToTheEndAndKeepNoMoreThanThereAreStages) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      EXPECT_EQ(MostKept(stages, micro_batches), std::min(stages, micro_batches))
          << stages << " stages, " << micro_batches << " micro-batches";
    }
  }
}

}  // namespace
}  // namespace c4::examples::lm
