// The language model's gradients against finite differences, whole and cut into tensor ranks and stages.
#include "examples/lm/model.h"

#include <barrier>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include "examples/lm/text.h"

namespace c4::examples::lm {
namespace {

constexpr ModelShape kShape = {2, 2, 8, 16, 6, 7};
constexpr size_t kSamples = 2;

Samples SomeText() {
  return SamplesOf(BuiltInText(), kShape.sequence, kSamples, 3, 1);
}

// A whole model's loss, of weight 1.
double LossOf(Model<double>* model, Model<double>::Kept* kept) {
  const Samples samples = SomeText();
  std::vector<double> x;
  EXPECT_TRUE(model->Forward(samples.bytes, kept, &x));
  return model->Loss(x, samples.next, 1, kept);
}

TEST(LmModelTest, GradientsAreThoseOfFiniteDifferences) {
  Model<double> model(kShape, PartOf(kShape, 0, 1, 0, 1), {});
  Model<double>::Kept kept;
  LossOf(&model, &kept);
  std::vector<double> dy;
  ASSERT_TRUE(model.Backward(kept, &dy));
  const std::vector<double> gradients = model.gradients();
  size_t compared = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i] == 0 && i % 16 != 0) continue;  // bytes that are not in the samples: some of them
    constexpr double kStep = 1e-5;
    const double weight = model.weights()[i];
    Model<double>::Kept other;
    model.weights()[i] = weight + kStep;
    const double above = LossOf(&model, &other);
    model.weights()[i] = weight - kStep;
    const double below = LossOf(&model, &other);
    model.weights()[i] = weight;
    ASSERT_NEAR(gradients[i], (above - below) / (2 * kStep), 1e-8 + 1e-6 * std::abs(gradients[i])) << i;
    ++compared;
  }
  EXPECT_GT(compared, 3000u);
}

TEST(LmModelTest, AModelThatKnowsNothingLosesTheEntropyOfAByte) {
  Model<double> model(kShape, PartOf(kShape, 0, 1, 0, 1), {});
  Model<double>::Kept kept;
  EXPECT_NEAR(LossOf(&model, &kept), std::log(256.0) + 0.5, 0.4);  // the logits vary by about 1
}

TEST(LmModelTest, WeightOfALossIsThatOfItsGradients) {
  const Samples samples = SomeText();
  std::vector<double> gradients[2];
  for (const int run : {0, 1}) {
    Model<double> model(kShape, PartOf(kShape, 0, 1, 0, 1), {});
    Model<double>::Kept kept;
    std::vector<double> x;
    ASSERT_TRUE(model.Forward(samples.bytes, &kept, &x));
    model.Loss(x, samples.next, run == 0 ? 1 : 0.25, &kept);
    ASSERT_TRUE(model.Backward(kept, &x));
    gradients[run] = model.gradients();
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    ASSERT_NEAR(gradients[1][i], 0.25 * gradients[0][i], 1e-15);
  }
}

// The sum of two tensor ranks that are two threads.
class PairSum {
 public:
  bool operator()(double* values, size_t count, int rank) {
    given_[rank].assign(values, values + count);
    barrier_.arrive_and_wait();
    for (size_t i = 0; i < count; ++i) values[i] = given_[0][i] + given_[1][i];
    barrier_.arrive_and_wait();
    return true;
  }

 private:
  std::vector<double> given_[2];
  std::barrier<> barrier_{2};
};

// Of two stages: the loss, and the gradients of the first one.
struct Outcome {
  double loss = 0;
  std::vector<double> first;
};

Outcome RunStages(int tensor_rank, int tensor_ranks, const TensorSum<double>& sum) {
  const Samples samples = SomeText();
  Model<double> first(kShape, PartOf(kShape, 0, 2, tensor_rank, tensor_ranks), sum);
  Model<double> second(kShape, PartOf(kShape, 1, 2, tensor_rank, tensor_ranks), sum);
  Model<double>::Kept first_kept;
  Model<double>::Kept second_kept;
  std::vector<double> x;
  EXPECT_TRUE(first.Forward(samples.bytes, &first_kept, &x));
  EXPECT_TRUE(second.Forward({}, &second_kept, &x));
  Outcome outcome;
  outcome.loss = second.Loss(x, samples.next, 1, &second_kept);
  EXPECT_TRUE(second.Backward(second_kept, &x));
  EXPECT_TRUE(first.Backward(first_kept, &x));
  outcome.first = first.gradients();
  return outcome;
}

TEST(LmModelTest, StagesAndTensorRanksComputeWhatTheWholeModelDoes) {
  Model<double> whole(kShape, PartOf(kShape, 0, 1, 0, 1), {});
  Model<double>::Kept kept;
  const double loss = LossOf(&whole, &kept);
  std::vector<double> dy;
  ASSERT_TRUE(whole.Backward(kept, &dy));

  const Outcome stages = RunStages(0, 1, {});
  EXPECT_NEAR(stages.loss, loss, 1e-12);
  // The embeddings and the first layer: the first of the whole model's weights.
  for (size_t i = 0; i < stages.first.size() - kShape.width; ++i) {
    ASSERT_NEAR(stages.first[i], whole.gradients()[i], 1e-12) << i;
  }

  PairSum sum;
  Outcome halves[2];
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      halves[rank] =
          RunStages(rank, 2, [&sum, rank](double* values, size_t count) { return sum(values, count, rank); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  const size_t shared = (kVocabulary + kShape.sequence) * kShape.width + kShape.width;
  for (const Outcome& half : halves) {
    EXPECT_NEAR(half.loss, loss, 1e-12);
    for (size_t i = 0; i < shared; ++i) ASSERT_NEAR(half.first[i], whole.gradients()[i], 1e-12) << i;
  }
  // Each has its columns of the queries.
  const size_t half_width = kShape.width / 2;
  for (size_t row = 0; row < kShape.width; ++row) {
    for (size_t column = 0; column < kShape.width; ++column) {
      const Outcome& half = halves[column / half_width];
      EXPECT_NEAR(half.first[shared + row * half_width + column % half_width],
                  whole.gradients()[shared + row * kShape.width + column], 1e-12);
    }
  }
}

TEST(LmModelTest, LayersAreDealtOutToAllStages) {
  ModelShape shape = kShape;
  shape.layers = 7;
  int next = 0;
  for (int stage = 0; stage < 3; ++stage) {
    const ModelPart part = PartOf(shape, stage, 3, 0, 1);
    EXPECT_EQ(part.first_layer, next);
    EXPECT_EQ(part.layers, stage == 0 ? 3 : 2);
    EXPECT_EQ(part.embeds, stage == 0);
    EXPECT_EQ(part.predicts, stage == 2);
    next += part.layers;
  }
  EXPECT_EQ(next, 7);
}

}  // namespace
}  // namespace c4::examples::lm
