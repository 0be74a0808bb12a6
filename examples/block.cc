#include "examples/block.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "examples/matrix.h"

namespace c4::examples {

Block::Block(size_t width, size_t hidden, unsigned seed)
    : width_(width), hidden_(hidden), weights_(2 * width * hidden), gradients_(2 * width * hidden) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F / std::sqrt(static_cast<float>(width)));
  for (float& weight : weights_) weight = normal(random);
}

void Block::Forward(const std::vector<float>& x, size_t batch, Kept* kept,
                    std::vector<float>* partial) const {
  const float* w1 = weights_.data();
  const float* w2 = weights_.data() + width_ * hidden_;
  kept->input = x;
  kept->active.assign(batch * hidden_, 0.0F);
  MultiplyTransposeAdd(x.data(), w1, kept->active.data(), batch, width_, hidden_);
  for (float& value : kept->active) value = std::max(value, 0.0F);
  partial->assign(batch * width_, 0.0F);
  MultiplyTransposeAdd(kept->active.data(), w2, partial->data(), batch, hidden_, width_);
}

void Block::Backward(const std::vector<float>& dy, size_t batch, const Kept& kept,
                     std::vector<float>* partial) {
  const float* w1 = weights_.data();
  const float* w2 = weights_.data() + width_ * hidden_;
  float* dw1 = gradients_.data();
  float* dw2 = gradients_.data() + width_ * hidden_;
  TransposeMultiplyAdd(dy.data(), kept.active.data(), dw2, width_, batch, hidden_);
  std::vector<float> da(batch * hidden_, 0.0F);
  MultiplyAdd(dy.data(), w2, da.data(), batch, width_, hidden_);
  for (size_t i = 0; i < da.size(); ++i) {
    if (kept.active[i] <= 0) da[i] = 0;
  }
  TransposeMultiplyAdd(da.data(), kept.input.data(), dw1, hidden_, batch, width_);
  partial->assign(batch * width_, 0.0F);
  MultiplyAdd(da.data(), w1, partial->data(), batch, hidden_, width_);
}

}  // namespace c4::examples
