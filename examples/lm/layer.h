// A layer of the language model: causal attention and a perceptron, each behind a root-mean-square norm and
// around a residual. Heads and hidden units are shared out over the tensor group; the group sums what leaves
// the attention and the perceptron, and on the way back what leaves the norms, so that all of it have the
// same inputs and outputs.
//
// Real: float for training, double to compare gradients with finite differences. A layer owns no numbers: its
// weights lie in the model's, from `first` on. One thread.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace c4::examples::lm {

// Sums `count` values over the tensor group, in place; false: that failed. Empty: a group of one.
template <typename Real>
using TensorSum = std::function<bool(Real* values, size_t count)>;

// Of a layer on one tensor rank.
struct LayerShape {
  size_t width = 0;
  size_t head_width = 0;
  size_t heads = 0;     // this rank's
  size_t hidden = 0;    // this rank's
  size_t sequence = 0;  // tokens; samples lie one behind the other

  size_t attention_width() const { return heads * head_width; }
};

// y = x / rms(x) * gain, row by row; `inverse` keeps 1 / rms.
template <typename Real>
void NormForward(const Real* x, const Real* gain, size_t rows, size_t width, std::vector<Real>* inverse,
                 std::vector<Real>* y);
// Adds to dx and to the gradient of the gain.
template <typename Real>
void NormBackward(const Real* x, const Real* gain, const std::vector<Real>& inverse, const Real* dy,
                  size_t rows, size_t width, Real* dx, Real* dgain);

template <typename Real>
class Layer {
 public:
  // Of one micro-batch, for its backward pass.
  struct Kept {
    std::vector<Real> input, inverse1, normal1, queries, keys, values;
    std::vector<Real> chances;  // [sample][head][query][key]
    std::vector<Real> mixed;    // what attention gives, before its projection
    std::vector<Real> middle, inverse2, normal2;
    std::vector<Real> hidden, active;  // before and after the perceptron's non-linearity
  };

  Layer() = default;
  Layer(const LayerShape& shape, size_t first) : shape_(shape), first_(first) {}

  // Where its parts begin in the model's weights: gain, queries, keys, values [width][attention_width],
  // projection [attention_width][width], gain, up [width][hidden], down [hidden][width].
  size_t queries() const { return first_ + shape_.width; }
  size_t keys() const { return queries() + shape_.width * shape_.attention_width(); }
  size_t values() const { return keys() + shape_.width * shape_.attention_width(); }
  size_t projection() const { return values() + shape_.width * shape_.attention_width(); }
  size_t gain2() const { return projection() + shape_.width * shape_.attention_width(); }
  size_t up() const { return gain2() + shape_.width; }
  size_t down() const { return up() + shape_.width * shape_.hidden; }
  size_t end() const { return down() + shape_.hidden * shape_.width; }
  size_t gain1() const { return first_; }

  // x [rows][width] becomes the layer's output.
  bool Forward(const Real* weights, const TensorSum<Real>& sum, Kept* kept, std::vector<Real>* x) const;
  // dy becomes the gradient of the input; adds to `gradients`, which lie as the weights do.
  bool Backward(const Real* weights, const TensorSum<Real>& sum, const Kept& kept, Real* gradients,
                std::vector<Real>* dy) const;

 private:
  void Attend(Kept* kept, size_t rows) const;
  void AttendBackward(const Kept& kept, const Real* dmixed, size_t rows, Real* dqueries, Real* dkeys,
                      Real* dvalues) const;
  bool BackwardAttention(const Real* weights, const TensorSum<Real>& sum, const Kept& kept, Real* gradients,
                         std::vector<Real>* dy) const;

  LayerShape shape_;
  size_t first_ = 0;
};

extern template class Layer<float>;
extern template class Layer<double>;

}  // namespace c4::examples::lm
