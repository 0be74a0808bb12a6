#include "examples/lm/state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/lm/mix.h"

namespace c4::examples::lm {
namespace {

constexpr float kMeanKept = 0.9F;
constexpr float kSquareKept = 0.99F;
constexpr float kSmallest = 1e-8F;

}  // namespace

void Adam::Step(int iteration, double learning_rate, std::vector<float>* weights,
                std::vector<float>* gradients) {
  const double steps = iteration + 1.0;
  const double square_share = 1 - std::pow(static_cast<double>(kSquareKept), steps);
  const double mean_share = 1 - std::pow(static_cast<double>(kMeanKept), steps);
  const auto rate = static_cast<float>(learning_rate / mean_share);
  const auto scale = static_cast<float>(1 / square_share);
  for (size_t i = 0; i < weights->size(); ++i) {
    const float gradient = (*gradients)[i];
    means[i] = kMeanKept * means[i] + (1 - kMeanKept) * gradient;
    squares[i] = kSquareKept * squares[i] + (1 - kSquareKept) * gradient * gradient;
    (*weights)[i] -= rate * means[i] / (std::sqrt(squares[i] * scale) + kSmallest);
    (*gradients)[i] = 0;
  }
}

std::vector<float> PackState(const std::vector<float>& weights, const Adam& adam) {
  std::vector<float> state = weights;
  state.reserve(3 * weights.size());
  state.insert(state.end(), adam.means.begin(), adam.means.end());
  state.insert(state.end(), adam.squares.begin(), adam.squares.end());
  return state;
}

bool UnpackState(const std::vector<float>& state, std::vector<float>* weights, Adam* adam) {
  const size_t count = weights->size();
  if (state.size() != 3 * count) return false;
  const float* at = state.data();
  for (std::vector<float>* part : {weights, &adam->means, &adam->squares}) {
    std::copy(at, at + count, part->begin());
    at += count;
  }
  return true;
}

uint64_t HashState(const std::vector<float>& state, uint64_t salt) {
  uint64_t hash = Mix(salt, state.size());
  for (const float value : state) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    hash = Mix(hash, bits);
  }
  return hash;
}

}  // namespace c4::examples::lm
