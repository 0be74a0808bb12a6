// The optimizer, its state as one vector, and the samples that an iteration learns from.
#include "examples/lm/state.h"

#include <cmath>
#include <gtest/gtest.h>

#include "examples/lm/text.h"

namespace c4::examples::lm {
namespace {

TEST(StateTest, TheFirstStepOfAdamIsTheLearningRateAgainstTheGradient) {
  std::vector<float> weights = {1, 2, 3};
  std::vector<float> gradients = {0.5F, -20, 0};
  Adam adam(3);
  adam.Step(0, 0.1, &weights, &gradients);
  EXPECT_NEAR(weights[0], 0.9, 1e-5);
  EXPECT_NEAR(weights[1], 2.1, 1e-5);
  EXPECT_EQ(weights[2], 3);
  EXPECT_EQ(gradients, (std::vector<float>{0, 0, 0}));
}

TEST(StateTest, AdamFindsTheLowestPoint) {
  std::vector<float> weights = {4, -7};
  Adam adam(2);
  for (int i = 0; i < 400; ++i) {
    std::vector<float> gradients = {2 * (weights[0] - 1), 20 * (weights[1] - 2)};
    adam.Step(i, 0.1, &weights, &gradients);
  }
  EXPECT_NEAR(weights[0], 1, 0.01);
  EXPECT_NEAR(weights[1], 2, 0.01);
}

TEST(StateTest, PackedStateComesBackToTheBit) {
  std::vector<float> weights = {1.5F, -0.0F};
  Adam adam(2);
  adam.means = {3, 1e-38F};
  adam.squares = {5, 6};
  const std::vector<float> state = PackState(weights, adam);
  std::vector<float> other(2, 0);
  Adam other_adam(2);
  ASSERT_TRUE(UnpackState(state, &other, &other_adam));
  EXPECT_EQ(HashState(PackState(other, other_adam), 1), HashState(state, 1));
  std::vector<float> three(3, 0);
  Adam adam_of_three(3);
  EXPECT_FALSE(UnpackState(state, &three, &adam_of_three));
}

TEST(StateTest, AHashTellsBitsAndWorkersApart) {
  const std::vector<float> state = {1, 0, 2};
  EXPECT_NE(HashState(state, 1), HashState(state, 2));
  EXPECT_NE(HashState(state, 1), HashState({1, -0.0F, 2}, 1));
  EXPECT_NE(HashState(state, 1), HashState({1, 2, 0}, 1));
}

TEST(StateTest, ASampleIsFollowedByTheNextByteAndDependsOnWhereItStands) {
  const std::string_view text = BuiltInText();
  const Samples samples = SamplesOf(text, 10, 3, 5, 2);
  ASSERT_EQ(samples.bytes.size(), 30u);
  ASSERT_EQ(samples.next.size(), 30u);
  for (size_t i = 0; i < 30; ++i) {
    if (i % 10 != 9) {
      EXPECT_EQ(samples.next[i], samples.bytes[i + 1]);
    }
  }
  EXPECT_EQ(SamplesOf(text, 10, 3, 5, 2).bytes, samples.bytes);
  EXPECT_NE(SamplesOf(text, 10, 3, 5, 3).bytes, samples.bytes);
  EXPECT_NE(SamplesOf(text, 10, 3, 6, 2).bytes, samples.bytes);
  EXPECT_EQ(SamplesOf("ab", 1, 1, 0, 0).next[0], 'b');  // the shortest text
}

}  // namespace
}  // namespace c4::examples::lm
