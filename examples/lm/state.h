// What a worker knows between two iterations: its weights, and what Adam remembers of their gradients. One
// vector, so that a checkpoint or another rank takes it as it is.
//
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace c4::examples::lm {

struct Adam {
  explicit Adam(size_t weights) : means(weights, 0), squares(weights, 0) {}

  // The step of `iteration` (from 0); the gradients become zero.
  void Step(int iteration, double learning_rate, std::vector<float>* weights, std::vector<float>* gradients);

  std::vector<float> means;
  std::vector<float> squares;
};

// Weights, means and squares one behind the other, and back: false where the sizes differ.
std::vector<float> PackState(const std::vector<float>& weights, const Adam& adam);
bool UnpackState(const std::vector<float>& state, std::vector<float>* weights, Adam* adam);

// Of all bits; `salt` tells states of different workers apart, so that their sum tells who holds what.
uint64_t HashState(const std::vector<float>& state, uint64_t salt);

}  // namespace c4::examples::lm
