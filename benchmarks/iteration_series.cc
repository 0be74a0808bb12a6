#include "benchmarks/iteration_series.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

namespace c4::benchmarks {
namespace {

// A level for each iteration, relative, and where it changes.
class Levels {
 public:
  Levels(size_t iterations, std::mt19937_64* random) : level_(iterations, 1.0), random_(*random) {}

  void Episodes(double least, double most) {
    const auto episodes = static_cast<size_t>(Between(1, 3.99));
    const size_t room = level_.size() / episodes;
    for (size_t i = 0; i < episodes; ++i) {
      const auto begin = i * room + 20 + static_cast<size_t>(Between(0, static_cast<double>(room) / 3));
      const auto length = static_cast<size_t>(Between(10, static_cast<double>(room) / 2));
      const bool to_the_end = i + 1 == episodes && Between(0, 1) < 0.3;
      const size_t end = to_the_end ? level_.size() : std::min(level_.size() - 12, begin + length);
      const double ratio = 1 + Between(least, most);
      for (size_t at = begin; at < end; ++at) level_[at] *= ratio;
      changes_.push_back({.iteration = begin, .ratio = ratio, .until = begin});
      if (end < level_.size()) changes_.push_back({.iteration = end, .ratio = 1 / ratio, .until = end});
    }
  }

  void Creep() {
    const auto begin = static_cast<size_t>(Between(40, static_cast<double>(level_.size()) / 3));
    const auto length = static_cast<size_t>(Between(60, static_cast<double>(level_.size()) / 2));
    const double ratio = 1 + Between(0.2, 0.6);
    const size_t end = std::min(level_.size() - 30, begin + length);
    for (size_t at = begin; at < level_.size(); ++at) {
      const double share = std::min(1.0, static_cast<double>(at - begin) / static_cast<double>(end - begin));
      level_[at] *= 1 + share * (ratio - 1);
    }
    changes_.push_back({.iteration = begin, .ratio = ratio, .until = end});
  }

  // What is no change: a drift of up to 4 %, as of a room that grows warm, and shifts of up to 4 %.
  void Drift() {
    const double most = Between(-0.04, 0.04);
    const bool wave = Between(0, 1) < 0.5;
    const auto length = static_cast<double>(level_.size());
    for (size_t at = 0; at < level_.size(); ++at) {
      const double share = static_cast<double>(at) / length;
      level_[at] *= 1 + most * (wave ? std::sin(2 * std::numbers::pi * 2 * share) : share);
    }
  }
  void Shift() {
    const auto begin = static_cast<size_t>(Between(20, static_cast<double>(level_.size()) - 20));
    const double ratio = 1 + Between(-0.04, 0.04);
    for (size_t at = begin; at < level_.size(); ++at) level_[at] *= ratio;
  }

  const std::vector<double>& level() const { return level_; }
  const std::vector<TrueChange>& changes() const { return changes_; }

 private:
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  std::vector<double> level_;
  std::vector<TrueChange> changes_;
  std::mt19937_64& random_;
};

// Noise about 1.
class Noise {
 public:
  explicit Noise(std::mt19937_64* random) : random_(*random) {
    sigma_ = std::exp(Between(std::log(0.0005), std::log(0.02)));
    heavy_ = Between(0, 1) < 0.3;
    memory_ = Between(0, 1) < 0.3 ? Between(0.3, 0.8) : 0;
  }

  double Next() {
    // A Student-t of three degrees of freedom has a variance of three.
    const double fresh = heavy_ ? std::student_t_distribution<double>(3)(random_) / std::sqrt(3.0)
                                : std::normal_distribution<double>()(random_);
    last_ = memory_ * last_ + std::sqrt(1 - memory_ * memory_) * fresh;
    return std::max(0.5, 1 + sigma_ * last_);
  }

 private:
  double Between(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

  std::mt19937_64& random_;
  double sigma_;
  bool heavy_;
  double memory_;
  double last_ = 0;
};

}  // namespace

const char* SeriesKindName(SeriesKind kind) {
  static constexpr const char* kNames[kSeriesKinds] = {"healthy", "weak", "medium", "severe", "creep"};
  return kNames[static_cast<size_t>(kind)];
}

IterationSeries MakeSeries(SeriesKind kind, uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(kind));
  const auto between = [&random](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto iterations = static_cast<size_t>(between(250, 1500));
  Levels levels(iterations, &random);
  if (kind == SeriesKind::kWeak) levels.Episodes(0.10, 0.20);
  if (kind == SeriesKind::kMedium) levels.Episodes(0.20, 0.50);
  if (kind == SeriesKind::kSevere) levels.Episodes(0.50, 3.0);
  if (kind == SeriesKind::kCreep) levels.Creep();
  if (between(0, 1) < 0.4) levels.Drift();
  if (between(0, 1) < 0.3) levels.Shift();

  static constexpr double kScales_s[] = {0.012, 0.35, 2.5, 45.7, 900, 4200};
  const double scale_s = kScales_s[random() % 6] * between(0.7, 1.3);
  const double step =
      between(0, 1) < 0.3 ? std::pow(10, std::floor(std::log10(scale_s)) - 2) : 0;  // of the clock
  const double spikes = between(0, 1) < 0.5 ? between(0, 0.02) : 0;
  const uint64_t pause_every = between(0, 1) < 0.5 ? static_cast<uint64_t>(between(15, 300)) : 0;
  const double pause = between(0.1, 4);
  const uint64_t long_first = static_cast<uint64_t>(between(0, 3.99));
  Noise noise(&random);
  IterationSeries series = {.kind = kind, .times_s = {}, .changes = levels.changes()};
  for (size_t i = 0; i < iterations; ++i) {
    double time_s = scale_s * levels.level()[i] * noise.Next();
    if (between(0, 1) < spikes) time_s += scale_s * between(0.05, 2);
    if (pause_every > 0 && (i + 1) % pause_every == 0) time_s += scale_s * pause;
    if (i < long_first) time_s += scale_s * between(0.5, 5);
    if (step > 0) time_s = std::max(step, std::round(time_s / step) * step);
    series.times_s.push_back(time_s);
  }
  return series;
}

std::vector<IterationSeries> MakeSeriesSet(int count, uint64_t seed) {
  std::vector<IterationSeries> set;
  for (int i = 0; i < count; ++i) {
    const auto kind =
        i % 3 == 0 ? SeriesKind::kHealthy : static_cast<SeriesKind>(1 + (i / 3 * 2 + i % 3 - 1) % 4);
    set.push_back(MakeSeries(kind, seed * 1'000'003 + static_cast<uint64_t>(i)));
  }
  return set;
}

}  // namespace c4::benchmarks
