// Bayesian online change-point detection (Adams and MacKay): how probable it is that the present level of a
// series has lasted for so many values.
//
// Values of one level are normal with unknown mean and variance (normal-inverse-gamma prior), so what a level
// predicts next is a Student-t. With a constant hazard the probability of a change at this very moment is the
// hazard, always; a change shows some values later, when most of the probability lies on a short run length.
// Run lengths that have become improbable are dropped, the longest ones are one, so a value costs
// microseconds and memory is bounded. Pure; one thread.
#pragma once

#include <cstddef>
#include <vector>

namespace c4::failslow {

struct RunLengthOptions {
  double hazard = 1.0 / 250;  // changes a value
  // The prior, of values whose level is about 1: as if one had been seen, with a relative deviation of some
  // percent.
  double kappa = 1;
  double alpha = 1;
  double beta = 1e-3;
  size_t longest = 256;
};

class RunLength {
 public:
  explicit RunLength(const RunLengthOptions& options = {});

  // Forgets all; values are about `level` from now on (they are divided by it).
  void Restart(double level);
  void Add(double value);

  // So many of the newest values are most probably of one level.
  size_t MostProbable() const;
  // That it are `from` to `to`, both included.
  double Probability(size_t from, size_t to) const;

 private:
  struct Run {
    size_t length = 0;
    double probability = 1;
    double mean = 1;
    double beta = 0;
  };
  double Predicted(const Run& run, double value) const;

  RunLengthOptions options_;
  std::vector<double> constants_;  // of the Student-t by run length
  double level_ = 1;
  std::vector<Run> runs_;  // by length
};

}  // namespace c4::failslow
