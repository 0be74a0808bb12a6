#include "examples/lm/model.h"

#include <algorithm>
#include <cmath>

#include "examples/lm/mix.h"
#include "examples/matrix.h"

namespace c4::examples::lm {
namespace {

// Of the model's matrices, for their first weights: a layer has at most kLayerMatrices.
enum : uint64_t { kBytes = 1, kPlaces = 2, kPrediction = 3, kLayers = 16 };
constexpr uint64_t kLayerMatrices = 16;

}  // namespace

ModelPart PartOf(const ModelShape& shape, int stage, int stages, int tensor_rank, int tensor_ranks) {
  const int each = shape.layers / stages;
  const int more = shape.layers % stages;
  ModelPart part;
  part.first_layer = stage * each + std::min(stage, more);
  part.layers = each + (stage < more ? 1 : 0);
  part.embeds = stage == 0;
  part.predicts = stage + 1 == stages;
  part.tensor_rank = static_cast<size_t>(tensor_rank);
  part.tensor_ranks = static_cast<size_t>(tensor_ranks);
  return part;
}

template <typename Real>
Model<Real>::Model(const ModelShape& shape, const ModelPart& part, TensorSum<Real> sum)
    : shape_(shape), part_(part), sum_(std::move(sum)) {
  layer_shape_ = {shape.width, shape.width / shape.heads, shape.heads / part.tensor_ranks,
                  shape.hidden / part.tensor_ranks, shape.sequence};
  size_t at = 0;
  if (part.embeds) {
    places_ = kVocabulary * shape.width;
    at = places_ + shape.sequence * shape.width;
  }
  for (int i = 0; i < part.layers; ++i) {
    layers_.emplace_back(layer_shape_, at);
    at = layers_.back().end();
  }
  gain_ = at;
  prediction_ = gain_ + shape.width;
  if (part.predicts) at = prediction_ + shape.width * kVocabulary;
  weights_.assign(at, 1);  // what is not filled are gains
  gradients_.assign(at, 0);

  const double scale = 1 / std::sqrt(static_cast<double>(shape.width));
  if (part.embeds) {
    Fill({0, kVocabulary, shape.width, 0, 0, shape.width}, kBytes, 0.1);
    Fill({places_, shape.sequence, shape.width, 0, 0, shape.width}, kPlaces, 0.1);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    FillLayer(layers_[i], static_cast<uint64_t>(part.first_layer) + i);
  }
  if (part.predicts) {
    Fill({prediction_, shape.width, kVocabulary, 0, 0, kVocabulary}, kPrediction, scale);
  }
}

template <typename Real>
void Model<Real>::Fill(const Cut& cut, uint64_t matrix, double scale) {
  for (size_t i = 0; i < cut.rows; ++i) {
    for (size_t j = 0; j < cut.columns; ++j) {
      const uint64_t place = (cut.row + i) * cut.whole_columns + cut.column + j;
      const double uniform = UnitOf(Mix(Mix(shape_.seed, matrix), place));
      // Uniform, with `scale` as its standard deviation.
      weights_[cut.at + i * cut.columns + j] = static_cast<Real>((2 * uniform - 1) * std::sqrt(3.0) * scale);
    }
  }
}

// Queries, keys, values and the way up are cut by columns, their counterparts by rows.
template <typename Real>
void Model<Real>::FillLayer(const Layer<Real>& layer, uint64_t number) {
  const size_t width = shape_.width;
  const size_t attention = layer_shape_.attention_width();
  const size_t hidden = layer_shape_.hidden;
  const uint64_t matrix = kLayers + number * kLayerMatrices;
  const double in = 1 / std::sqrt(static_cast<double>(width));
  const double residual = 1 / std::sqrt(2.0 * shape_.layers);
  uint64_t next = matrix;
  for (const size_t at : {layer.queries(), layer.keys(), layer.values()}) {
    Fill({at, width, attention, 0, part_.tensor_rank * attention, width}, next++, in);
  }
  Fill({layer.projection(), attention, width, part_.tensor_rank * attention, 0, width}, next++,
       in * residual);
  Fill({layer.up(), width, hidden, 0, part_.tensor_rank * hidden, shape_.hidden}, next++, in);
  Fill({layer.down(), hidden, width, part_.tensor_rank * hidden, 0, width}, next++,
       residual / std::sqrt(static_cast<double>(shape_.hidden)));
}

template <typename Real>
bool Model<Real>::Forward(std::span<const uint8_t> bytes, Kept* kept, std::vector<Real>* x) {
  const size_t width = shape_.width;
  if (part_.embeds) {
    kept->bytes.assign(bytes.begin(), bytes.end());
    x->resize(bytes.size() * width);
    for (size_t row = 0; row < bytes.size(); ++row) {
      const Real* byte = weights_.data() + bytes[row] * width;
      const Real* place = weights_.data() + places_ + row % shape_.sequence * width;
      for (size_t j = 0; j < width; ++j) (*x)[row * width + j] = byte[j] + place[j];
    }
  }
  kept->layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].Forward(weights_.data(), sum_, &kept->layers[i], x)) return false;
  }
  return true;
}

template <typename Real>
double Model<Real>::Loss(const std::vector<Real>& x, std::span<const uint8_t> next, double weight,
                         Kept* kept) {
  const size_t rows = next.size();
  kept->last = x;
  NormForward(x.data(), weights_.data() + gain_, rows, shape_.width, &kept->inverse, &kept->normal);
  kept->dlogits.assign(rows * kVocabulary, 0);
  MultiplyAdd(kept->normal.data(), weights_.data() + prediction_, kept->dlogits.data(), rows, shape_.width,
              kVocabulary);
  double loss = 0;
  const Real scale = static_cast<Real>(weight / static_cast<double>(rows));
  for (size_t row = 0; row < rows; ++row) {
    Real* logits = kept->dlogits.data() + row * kVocabulary;
    const Real highest = *std::max_element(logits, logits + kVocabulary);
    const Real right = logits[next[row]] - highest;
    Real total = 0;
    for (size_t j = 0; j < kVocabulary; ++j) total += logits[j] = std::exp(logits[j] - highest);
    loss += std::log(static_cast<double>(total)) - static_cast<double>(right);
    for (size_t j = 0; j < kVocabulary; ++j) logits[j] *= scale / total;
    logits[next[row]] -= scale;
  }
  return loss / static_cast<double>(rows);
}

template <typename Real>
bool Model<Real>::Backward(const Kept& kept, std::vector<Real>* dy) {
  const size_t width = shape_.width;
  if (part_.predicts) {
    const size_t rows = kept.dlogits.size() / kVocabulary;
    TransposeMultiplyAdd(kept.normal.data(), kept.dlogits.data(), gradients_.data() + prediction_, width,
                         rows, kVocabulary);
    std::vector<Real> dnormal(rows * width, 0);
    MultiplyTransposeAdd(kept.dlogits.data(), weights_.data() + prediction_, dnormal.data(), rows,
                         kVocabulary, width);
    dy->assign(rows * width, 0);
    NormBackward(kept.last.data(), weights_.data() + gain_, kept.inverse, dnormal.data(), rows, width,
                 dy->data(), gradients_.data() + gain_);
  }
  for (size_t i = layers_.size(); i-- > 0;) {
    if (!layers_[i].Backward(weights_.data(), sum_, kept.layers[i], gradients_.data(), dy)) return false;
  }
  if (!part_.embeds) return true;
  for (size_t row = 0; row < kept.bytes.size(); ++row) {
    Real* byte = gradients_.data() + kept.bytes[row] * width;
    Real* place = gradients_.data() + places_ + row % shape_.sequence * width;
    for (size_t j = 0; j < width; ++j) {
      byte[j] += (*dy)[row * width + j];
      place[j] += (*dy)[row * width + j];
    }
  }
  return true;
}

template class Model<float>;
template class Model<double>;

}  // namespace c4::examples::lm
