// A small language model that reads bytes: embeddings of bytes and places, layers (layer.h), a norm and a
// prediction of the next byte. A rank holds a part of it: some layers, the first stage with the embeddings,
// the last with the prediction, and of each layer its share of the tensor group. The weights that it begins
// with do not depend on how the model is cut.
//
// Weights, and likewise their gradients, are one vector, as a data group reduces it and a checkpoint writes
// it. Embeddings, norms and prediction are the same on all ranks of a tensor group, and so are their
// gradients. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/lm/layer.h"

namespace c4::examples::lm {

inline constexpr size_t kVocabulary = 256;  // bytes

struct ModelShape {
  int layers = 4;
  size_t heads = 4;
  size_t width = 64;
  size_t hidden = 256;
  size_t sequence = 64;  // bytes that it sees at once
  uint64_t seed = 1;     // of the first weights
};

struct ModelPart {
  int first_layer = 0;
  int layers = 0;
  bool embeds = false;    // holds the embeddings: the first stage
  bool predicts = false;  // holds the prediction: the last stage
  size_t tensor_rank = 0;
  size_t tensor_ranks = 1;  // heads and hidden units are multiples of it
};

// Layers are dealt out evenly, the first stages one more where they do not go up.
ModelPart PartOf(const ModelShape& shape, int stage, int stages, int tensor_rank, int tensor_ranks);

template <typename Real>
class Model {
 public:
  // Of one micro-batch, from its forward to its backward pass.
  struct Kept {
    std::vector<uint8_t> bytes;
    std::vector<typename Layer<Real>::Kept> layers;
    std::vector<Real> last, inverse, normal, dlogits;
  };

  Model(const ModelShape& shape, const ModelPart& part, TensorSum<Real> sum);

  // `bytes`: of the samples, one behind the other; the first stage's input. x [bytes][width]: what the stage
  // before gave, and then what this one gives. False: a sum over the tensor group failed.
  bool Forward(std::span<const uint8_t> bytes, Kept* kept, std::vector<Real>* x);
  // Behind Forward, in the part that predicts: the mean loss over the bytes that follow. Its gradient is
  // multiplied by `weight`.
  double Loss(const std::vector<Real>& x, std::span<const uint8_t> next, double weight, Kept* kept);
  // dy: what the next stage gave back (nothing in the part that predicts), and then what this one gives back.
  // Adds to the gradients.
  bool Backward(const Kept& kept, std::vector<Real>* dy);

  std::vector<Real>& weights() { return weights_; }
  const std::vector<Real>& weights() const { return weights_; }
  std::vector<Real>& gradients() { return gradients_; }

 private:
  // A matrix of `weights_`, which is the part [rows][columns] at (row, column) of one with `whole_columns`.
  struct Cut {
    size_t at;
    size_t rows;
    size_t columns;
    size_t row;
    size_t column;
    size_t whole_columns;
  };
  void Fill(const Cut& cut, uint64_t matrix, double scale);
  void FillLayer(const Layer<Real>& layer, uint64_t number);

  ModelShape shape_;
  ModelPart part_;
  LayerShape layer_shape_;
  TensorSum<Real> sum_;
  std::vector<Layer<Real>> layers_;
  size_t places_ = 0;  // where these begin; the embeddings of bytes are at 0
  size_t gain_ = 0;
  size_t prediction_ = 0;
  std::vector<Real> weights_;
  std::vector<Real> gradients_;
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace c4::examples::lm
