#include "analysis/failslow/run_length.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace c4::failslow {
namespace {

constexpr double kNegligible = 1e-9;

}  // namespace

RunLength::RunLength(const RunLengthOptions& options) : options_(options) {
  for (size_t length = 0; length <= options_.longest; ++length) {
    const double alpha = options_.alpha + static_cast<double>(length) / 2;
    constants_.push_back(std::exp(std::lgamma(alpha + 0.5) - std::lgamma(alpha)) /
                         std::sqrt(2 * alpha * std::numbers::pi));
  }
  Restart(1);
}

void RunLength::Restart(double level) {
  level_ = level;
  runs_.assign(1, {.beta = options_.beta});
}

// The density of a Student-t with 2 alpha degrees of freedom.
double RunLength::Predicted(const Run& run, double value) const {
  const double kappa = options_.kappa + static_cast<double>(run.length);
  const double alpha = options_.alpha + static_cast<double>(run.length) / 2;
  const double scale2 = run.beta * (kappa + 1) / (alpha * kappa);
  const double distance2 = (value - run.mean) * (value - run.mean) / scale2;
  return constants_[run.length] / std::sqrt(scale2) * std::pow(1 + distance2 / (2 * alpha), -alpha - 0.5);
}

void RunLength::Add(double value) {
  value /= level_;
  Run fresh = {.probability = 0, .beta = options_.beta};
  double sum = 0;
  for (Run& run : runs_) {
    const double joint = run.probability * Predicted(run, value);
    fresh.probability += joint * options_.hazard;
    const double kappa = options_.kappa + static_cast<double>(run.length);
    run.probability = joint * (1 - options_.hazard);
    run.beta += kappa * (value - run.mean) * (value - run.mean) / (2 * (kappa + 1));
    run.mean = (kappa * run.mean + value) / (kappa + 1);
    sum += joint;
    if (run.length < options_.longest) {
      ++run.length;
    } else {
      run.beta *= 1 - 1 / (2 * options_.alpha +
                           static_cast<double>(run.length));  // the variance is that of `longest` values
    }
  }
  if (!(sum > 0)) {  // so far away that every density is 0
    runs_.assign(1, {.beta = options_.beta});
    return;
  }
  runs_.insert(runs_.begin(), fresh);
  for (Run& run : runs_) run.probability /= sum;
  // Two may have become the longest.
  if (runs_.size() >= 2 && runs_[runs_.size() - 2].length == runs_.back().length) {
    Run& kept = runs_[runs_.size() - 2];
    const double both = kept.probability + runs_.back().probability;
    if (runs_.back().probability > kept.probability) kept = runs_.back();
    kept.probability = both;
    runs_.pop_back();
  }
  std::erase_if(runs_, [](const Run& run) { return run.length > 0 && run.probability < kNegligible; });
}

size_t RunLength::MostProbable() const {
  return std::max_element(runs_.begin(), runs_.end(),
                          [](const Run& a, const Run& b) { return a.probability < b.probability; })
      ->length;
}

double RunLength::Probability(size_t from, size_t to) const {
  double sum = 0;
  for (const Run& run : runs_) {
    if (run.length >= from && run.length <= to) sum += run.probability;
  }
  return sum;
}

}  // namespace c4::failslow
