#include "analysis/whatif/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace c4::whatif {
namespace {

template <typename T>
double MedianOf(std::vector<T>* values) {
  if (values->empty()) return 0;
  const auto middle = values->begin() + static_cast<ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  if (values->size() % 2 == 1) return static_cast<double>(*middle);
  const T below = *std::max_element(values->begin(), middle);
  return (static_cast<double>(below) + static_cast<double>(*middle)) / 2;
}

}  // namespace

double Mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Median(std::vector<float>* values) {
  return MedianOf(values);
}

double Median(std::vector<double> values) {
  return MedianOf(&values);
}

double LowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Correlation::Add(double x, double y) {
  ++count_;
  const double dx = x - mean_x_;
  const double dy = y - mean_y_;
  mean_x_ += dx / static_cast<double>(count_);
  mean_y_ += dy / static_cast<double>(count_);
  xx_ += dx * (x - mean_x_);
  yy_ += dy * (y - mean_y_);
  xy_ += dx * (y - mean_y_);
}

void Correlation::Add(const Correlation& other) {
  if (other.count_ == 0) return;
  const auto mine = static_cast<double>(count_);
  const auto theirs = static_cast<double>(other.count_);
  const double all = mine + theirs;
  const double dx = other.mean_x_ - mean_x_;
  const double dy = other.mean_y_ - mean_y_;
  xx_ += other.xx_ + dx * dx * mine * theirs / all;
  yy_ += other.yy_ + dy * dy * mine * theirs / all;
  xy_ += other.xy_ + dx * dy * mine * theirs / all;
  mean_x_ += dx * theirs / all;
  mean_y_ += dy * theirs / all;
  count_ += other.count_;
}

std::optional<double> Correlation::Value() const {
  if (count_ < 2 || xx_ <= 0 || yy_ <= 0) return std::nullopt;
  return xy_ / std::sqrt(xx_ * yy_);
}

}  // namespace c4::whatif
