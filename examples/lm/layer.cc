#include "examples/lm/layer.h"

#include <algorithm>
#include <cmath>

#include "examples/matrix.h"

namespace c4::examples::lm {
namespace {

constexpr double kSmallest = 1e-5;  // keeps a row of zeros from dividing by zero

// The usual approximation of GELU by tanh, and its derivative.
template <typename Real>
Real Activate(Real x) {
  const Real inner = Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x);
  return Real(0.5) * x * (1 + std::tanh(inner));
}

template <typename Real>
Real ActivateSlope(Real x) {
  const Real inner = Real(0.7978845608028654) * (x + Real(0.044715) * x * x * x);
  const Real slope = Real(0.7978845608028654) * (1 + 3 * Real(0.044715) * x * x);
  const Real tanh = std::tanh(inner);
  return Real(0.5) * (1 + tanh) + Real(0.5) * x * (1 - tanh * tanh) * slope;
}

template <typename Real>
bool Sum(const TensorSum<Real>& sum, std::vector<Real>* values) {
  return !sum || sum(values->data(), values->size());
}

}  // namespace

template <typename Real>
void NormForward(const Real* x, const Real* gain, size_t rows, size_t width, std::vector<Real>* inverse,
                 std::vector<Real>* y) {
  inverse->resize(rows);
  y->resize(rows * width);
  for (size_t row = 0; row < rows; ++row, x += width) {
    Real squares = 0;
    for (size_t j = 0; j < width; ++j) squares += x[j] * x[j];
    const Real factor = 1 / std::sqrt(squares / static_cast<Real>(width) + Real(kSmallest));
    (*inverse)[row] = factor;
    Real* to = y->data() + row * width;
    for (size_t j = 0; j < width; ++j) to[j] = x[j] * factor * gain[j];
  }
}

template <typename Real>
void NormBackward(const Real* x, const Real* gain, const std::vector<Real>& inverse, const Real* dy,
                  size_t rows, size_t width, Real* dx, Real* dgain) {
  for (size_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const Real factor = inverse[row];
    Real along = 0;
    for (size_t j = 0; j < width; ++j) along += x[j] * gain[j] * dy[j];
    const Real back = along * factor * factor * factor / static_cast<Real>(width);
    for (size_t j = 0; j < width; ++j) {
      dx[j] += factor * gain[j] * dy[j] - x[j] * back;
      dgain[j] += x[j] * factor * dy[j];
    }
  }
}

// Each query of a sample weighs the values of the keys up to its own place.
template <typename Real>
void Layer<Real>::Attend(Kept* kept, size_t rows) const {
  const size_t length = shape_.sequence;
  const size_t stride = shape_.attention_width();
  const Real scale = 1 / std::sqrt(static_cast<Real>(shape_.head_width));
  kept->chances.assign(rows * shape_.heads * length, 0);
  kept->mixed.assign(rows * stride, 0);
  for (size_t part = 0; part < rows / length * shape_.heads; ++part) {
    const size_t at = part / shape_.heads * length * stride + part % shape_.heads * shape_.head_width;
    Real* chances = kept->chances.data() + part * length * length;
    for (size_t i = 0; i < length; ++i, chances += length) {
      const Real* query = kept->queries.data() + at + i * stride;
      Real highest = -1e30F;
      for (size_t j = 0; j <= i; ++j) {
        const Real* key = kept->keys.data() + at + j * stride;
        Real score = 0;
        for (size_t d = 0; d < shape_.head_width; ++d) score += query[d] * key[d];
        chances[j] = score * scale;
        highest = std::max(highest, chances[j]);
      }
      Real total = 0;
      for (size_t j = 0; j <= i; ++j) total += chances[j] = std::exp(chances[j] - highest);
      Real* mixed = kept->mixed.data() + at + i * stride;
      for (size_t j = 0; j <= i; ++j) {
        const Real* value = kept->values.data() + at + j * stride;
        chances[j] /= total;
        for (size_t d = 0; d < shape_.head_width; ++d) mixed[d] += chances[j] * value[d];
      }
    }
  }
}

template <typename Real>
void Layer<Real>::AttendBackward(const Kept& kept, const Real* dmixed, size_t rows, Real* dqueries,
                                 Real* dkeys, Real* dvalues) const {
  const size_t length = shape_.sequence;
  const size_t stride = shape_.attention_width();
  const Real scale = 1 / std::sqrt(static_cast<Real>(shape_.head_width));
  std::vector<Real> dchances(length);
  for (size_t part = 0; part < rows / length * shape_.heads; ++part) {
    const size_t at = part / shape_.heads * length * stride + part % shape_.heads * shape_.head_width;
    const Real* chances = kept.chances.data() + part * length * length;
    for (size_t i = 0; i < length; ++i, chances += length) {
      const Real* out = dmixed + at + i * stride;
      Real along = 0;
      for (size_t j = 0; j <= i; ++j) {
        const Real* value = kept.values.data() + at + j * stride;
        Real* dvalue = dvalues + at + j * stride;
        Real gradient = 0;
        for (size_t d = 0; d < shape_.head_width; ++d) {
          gradient += out[d] * value[d];
          dvalue[d] += chances[j] * out[d];
        }
        dchances[j] = gradient;
        along += gradient * chances[j];
      }
      const Real* query = kept.queries.data() + at + i * stride;
      Real* dquery = dqueries + at + i * stride;
      for (size_t j = 0; j <= i; ++j) {
        const Real gradient = chances[j] * (dchances[j] - along) * scale;
        const Real* key = kept.keys.data() + at + j * stride;
        Real* dkey = dkeys + at + j * stride;
        for (size_t d = 0; d < shape_.head_width; ++d) {
          dquery[d] += gradient * key[d];
          dkey[d] += gradient * query[d];
        }
      }
    }
  }
}

template <typename Real>
bool Layer<Real>::Forward(const Real* weights, const TensorSum<Real>& sum, Kept* kept,
                          std::vector<Real>* x) const {
  const size_t width = shape_.width;
  const size_t rows = x->size() / width;
  const size_t attention = shape_.attention_width();
  kept->input = *x;
  NormForward(x->data(), weights + gain1(), rows, width, &kept->inverse1, &kept->normal1);
  for (const auto& [to, from] : {std::pair{&kept->queries, queries()}, std::pair{&kept->keys, keys()},
                                 std::pair{&kept->values, values()}}) {
    to->assign(rows * attention, 0);
    MultiplyAdd(kept->normal1.data(), weights + from, to->data(), rows, width, attention);
  }
  Attend(kept, rows);
  std::vector<Real> added(rows * width, 0);
  MultiplyAdd(kept->mixed.data(), weights + projection(), added.data(), rows, attention, width);
  if (!Sum(sum, &added)) return false;
  for (size_t i = 0; i < added.size(); ++i) (*x)[i] += added[i];

  kept->middle = *x;
  NormForward(x->data(), weights + gain2(), rows, width, &kept->inverse2, &kept->normal2);
  kept->hidden.assign(rows * shape_.hidden, 0);
  MultiplyAdd(kept->normal2.data(), weights + up(), kept->hidden.data(), rows, width, shape_.hidden);
  kept->active.resize(kept->hidden.size());
  std::transform(kept->hidden.begin(), kept->hidden.end(), kept->active.begin(), Activate<Real>);
  added.assign(rows * width, 0);
  MultiplyAdd(kept->active.data(), weights + down(), added.data(), rows, shape_.hidden, width);
  if (!Sum(sum, &added)) return false;
  for (size_t i = 0; i < added.size(); ++i) (*x)[i] += added[i];
  return true;
}

template <typename Real>
bool Layer<Real>::Backward(const Real* weights, const TensorSum<Real>& sum, const Kept& kept, Real* gradients,
                           std::vector<Real>* dy) const {
  const size_t width = shape_.width;
  const size_t rows = dy->size() / width;
  TransposeMultiplyAdd(kept.active.data(), dy->data(), gradients + down(), shape_.hidden, rows, width);
  std::vector<Real> dhidden(rows * shape_.hidden, 0);
  MultiplyTransposeAdd(dy->data(), weights + down(), dhidden.data(), rows, width, shape_.hidden);
  for (size_t i = 0; i < dhidden.size(); ++i) dhidden[i] *= ActivateSlope(kept.hidden[i]);
  TransposeMultiplyAdd(kept.normal2.data(), dhidden.data(), gradients + up(), width, rows, shape_.hidden);
  std::vector<Real> dnormal(rows * width, 0);
  MultiplyTransposeAdd(dhidden.data(), weights + up(), dnormal.data(), rows, shape_.hidden, width);
  if (!Sum(sum, &dnormal)) return false;
  NormBackward(kept.middle.data(), weights + gain2(), kept.inverse2, dnormal.data(), rows, width, dy->data(),
               gradients + gain2());
  return BackwardAttention(weights, sum, kept, gradients, dy);
}

template <typename Real>
bool Layer<Real>::BackwardAttention(const Real* weights, const TensorSum<Real>& sum, const Kept& kept,
                                    Real* gradients, std::vector<Real>* dy) const {
  const size_t width = shape_.width;
  const size_t rows = dy->size() / width;
  const size_t attention = shape_.attention_width();
  TransposeMultiplyAdd(kept.mixed.data(), dy->data(), gradients + projection(), attention, rows, width);
  std::vector<Real> dmixed(rows * attention, 0);
  MultiplyTransposeAdd(dy->data(), weights + projection(), dmixed.data(), rows, width, attention);
  std::vector<Real> dqueries(rows * attention, 0);
  std::vector<Real> dkeys = dqueries;
  std::vector<Real> dvalues = dqueries;
  AttendBackward(kept, dmixed.data(), rows, dqueries.data(), dkeys.data(), dvalues.data());
  std::vector<Real> dnormal(rows * width, 0);
  for (const auto& [from, at] :
       {std::pair{&dqueries, queries()}, std::pair{&dkeys, keys()}, std::pair{&dvalues, values()}}) {
    TransposeMultiplyAdd(kept.normal1.data(), from->data(), gradients + at, width, rows, attention);
    MultiplyTransposeAdd(from->data(), weights + at, dnormal.data(), rows, attention, width);
  }
  if (!Sum(sum, &dnormal)) return false;
  NormBackward(kept.input.data(), weights + gain1(), kept.inverse1, dnormal.data(), rows, width, dy->data(),
               gradients + gain1());
  return true;
}

template void NormForward(const float*, const float*, size_t, size_t, std::vector<float>*,
                          std::vector<float>*);
template void NormForward(const double*, const double*, size_t, size_t, std::vector<double>*,
                          std::vector<double>*);
template void NormBackward(const float*, const float*, const std::vector<float>&, const float*, size_t,
                           size_t, float*, float*);
template void NormBackward(const double*, const double*, const std::vector<double>&, const double*, size_t,
                           size_t, double*, double*);
template class Layer<float>;
template class Layer<double>;

}  // namespace c4::examples::lm
