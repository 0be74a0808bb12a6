// The arithmetic of the trainer: one residual block, y = x + W2 relu(W1 x), split over a tensor group. Each
// rank holds some rows of W1 and the same columns of W2, so that the partial sums of y (and of dx) have to be
// added up over the group between the halves: that is the caller's AllReduce.
//
// Matrices are row-major, activations [batch][width]. Pure; one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace c4::examples {

class Block {
 public:
  // `hidden` units of this rank's share. Weights depend on `seed` alone.
  Block(size_t width, size_t hidden, unsigned seed);

  // This rank's share of W2 relu(W1 x); what backward needs is kept in `kept`.
  struct Kept {
    std::vector<float> input;   // [batch][width]
    std::vector<float> active;  // [batch][hidden]
  };
  void Forward(const std::vector<float>& x, size_t batch, Kept* kept, std::vector<float>* partial) const;
  // Adds to the gradients; gives this rank's share of dx without the residual.
  void Backward(const std::vector<float>& dy, size_t batch, const Kept& kept, std::vector<float>* partial);

  // W1 and W2 one after the other, and their gradients likewise.
  std::vector<float>& weights() { return weights_; }
  std::vector<float>& gradients() { return gradients_; }

 private:
  size_t width_;
  size_t hidden_;
  std::vector<float> weights_;
  std::vector<float> gradients_;
};

}  // namespace c4::examples
