// Small statistics of the what-if analysis. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace c4::whatif {

double Mean(const std::vector<double>& values);  // 0 of none

// Reorders `values`. The mean of the two in the middle of an even number; 0 of none.
double Median(std::vector<float>* values);
double Median(std::vector<double> values);
// Half of the values are at most this; of two the lesser. REQUIRES: there is one.
double LowerMedian(std::vector<double> values);

// Pearson's correlation, added up pair by pair. nullopt: fewer than two pairs, or one side never changes.
class Correlation {
 public:
  void Add(double x, double y);
  void Add(const Correlation& other);
  std::optional<double> Value() const;
  size_t count() const { return count_; }

 private:
  size_t count_ = 0;
  double mean_x_ = 0;
  double mean_y_ = 0;
  double xx_ = 0;  // sums of products of deviations
  double yy_ = 0;
  double xy_ = 0;
};

}  // namespace c4::whatif
