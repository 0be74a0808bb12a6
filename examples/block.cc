#include "examples/block.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace c4::examples {
namespace {

// out[m][n] += a[m][k] b[k][n]
void MultiplyAdd(const float* a, const float* b, float* out, size_t m, size_t k, size_t n) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t l = 0; l < k; ++l) {
      const float factor = a[i * k + l];
      const float* row = b + l * n;
      float* to = out + i * n;
      for (size_t j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  }
}

// out[m][n] += a[k][m]^T b[k][n]
void TransposeMultiplyAdd(const float* a, const float* b, float* out, size_t m, size_t k, size_t n) {
  for (size_t l = 0; l < k; ++l) {
    for (size_t i = 0; i < m; ++i) {
      const float factor = a[l * m + i];
      if (factor == 0) continue;
      const float* row = b + l * n;
      float* to = out + i * n;
      for (size_t j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  }
}

// out[m][n] += a[m][k] b[n][k]^T
void MultiplyTransposeAdd(const float* a, const float* b, float* out, size_t m, size_t k, size_t n) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const float* x = a + i * k;
      const float* y = b + j * k;
      float sums[8] = {};
      size_t l = 0;
      for (; l + 8 <= k; l += 8) {
        for (size_t lane = 0; lane < 8; ++lane) sums[lane] += x[l + lane] * y[l + lane];
      }
      float sum = 0;
      for (const float lane : sums) sum += lane;
      for (; l < k; ++l) sum += x[l] * y[l];
      out[i * n + j] += sum;
    }
  }
}

}  // namespace

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
