#include "benchmarks/perf_terms.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace c4::perf {
namespace {

// Ranks that send something else than 1 to a product at each pattern: one sends 3 (or 1.5), some 2, and of
// floating-point types some 0.5. No partial product then leaves the smallest type.
constexpr int kDoubles = 4;
constexpr int kHalves = 4;

int MostScalar(const TypeInfo& type) {
  return type.precision == 0 || type.precision >= 8 ? 3 : 2;
}

// The most that partial sums may reach: every whole number up to it is one of the type's.
int64_t Budget(const TypeInfo& type) {
  if (type.precision > 0) return int64_t{1} << type.precision;
  const int bits = static_cast<int>(8 * type.bytes) - (type.is_signed ? 1 : 0);
  return (int64_t{1} << std::min(bits, 62)) - 1;
}

}  // namespace

uint64_t HashOf(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xd6e8feb86659fd93u + c * 0xa0761d6478bd642fu;
  x ^= x >> 32;
  x *= 0xe9846af9b1a615du;
  x ^= x >> 32;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 29);
}

Terms::Terms(const TypeInfo& type, Reduction reduction, int ranks)
    : type_(type), reduction_(reduction), ranks_(ranks) {
  int64_t budget = Budget(type);
  if (reduction == Reduction::kMulSum) budget /= MostScalar(type);
  active_ = static_cast<int>(std::min<int64_t>(ranks, budget));
  if (reduction == Reduction::kProd) active_ = std::min(ranks, 1 + kDoubles + kHalves);
  if (reduction == Reduction::kAvg && is_float()) {
    const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
    exact_ = power_of_two && 1.0 / ranks >= LeastNumber(type);
    if (!exact_) active_ = std::min(ranks, type.precision >= 8 ? 4 : 1);
    shift_ = std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))) - 1, 4);
  }
  limit_ = budget / active_;
}

int Terms::Scalar(const TypeInfo& type, int rank) {
  return 1 + rank % MostScalar(type);
}

bool Terms::Wraps() const {
  return !is_float() && !type_.is_signed && reduction_ != Reduction::kAvg;
}

uint64_t Terms::Fit(uint64_t value) const {
  const int spare = 64 - static_cast<int>(8 * type_.bytes);
  const uint64_t high = value << spare;
  return type_.is_signed ? static_cast<uint64_t>(static_cast<int64_t>(high) >> spare) : high >> spare;
}

int Terms::Slot(int rank, size_t pattern) const {
  const auto start = static_cast<int>(pattern * static_cast<size_t>(active_) % static_cast<size_t>(ranks_));
  return (rank - start + ranks_) % ranks_;
}

int64_t Terms::Weight(int rank, size_t pattern) const {
  if (Slot(rank, pattern) >= active_) return 0;
  const uint64_t hash = HashOf(pattern, static_cast<uint64_t>(rank), 1);
  const auto magnitude = static_cast<int64_t>(1 + (hash >> 1) % static_cast<uint64_t>(limit_));
  return type_.is_signed && (hash & 1) != 0 ? -magnitude : magnitude;
}

double Terms::Factor(int rank, size_t pattern) const {
  const uint64_t hash = HashOf(pattern, static_cast<uint64_t>(rank), 2);
  const int slot = Slot(rank, pattern);
  double factor = 1;
  if (slot == 0) {
    factor = is_float() && (hash & 2) != 0 ? 1.5 : 3;
  } else if (slot <= kDoubles) {
    factor = 2;
  } else if (slot <= kDoubles + kHalves && is_float()) {
    factor = 0.5;
  }
  return type_.is_signed && (hash & 1) != 0 ? -factor : factor;
}

double Terms::Real(int rank, size_t pattern) const {
  switch (reduction_) {
    case Reduction::kProd:
      return Factor(rank, pattern);
    case Reduction::kMax:
    case Reduction::kMin: {
      const auto span = (uint64_t{2} << type_.precision) + 1;
      const uint64_t drawn = HashOf(pattern, static_cast<uint64_t>(rank), 3) % span;
      return static_cast<double>(static_cast<int64_t>(drawn) - (int64_t{1} << type_.precision));
    }
    default:
      return std::ldexp(static_cast<double>(Weight(rank, pattern)), shift_);
  }
}

uint64_t Terms::Whole(int rank, size_t pattern) const {
  const bool extreme = reduction_ == Reduction::kMax || reduction_ == Reduction::kMin;
  const uint64_t any = HashOf(pattern, static_cast<uint64_t>(rank), 3) >> 7;
  if (extreme || Wraps()) {
    const uint64_t whole = any ^ any << 32;  // all 64 bits
    // Even factors would make a product of many ranks zero.
    return Fit(reduction_ == Reduction::kProd ? whole | 1 : whole);
  }
  if (reduction_ == Reduction::kProd)
    return static_cast<uint64_t>(static_cast<int64_t>(Factor(rank, pattern)));
  return static_cast<uint64_t>(Weight(rank, pattern));
}

uint64_t Terms::Sent(int rank, size_t pattern) const {
  if (is_float()) return Encode(type_, Real(rank, pattern));
  const int spare = 64 - static_cast<int>(8 * type_.bytes);
  return Whole(rank, pattern) << spare >> spare;
}

Terms::Result Terms::ReducedReal(size_t pattern) const {
  double result = Real(0, pattern);
  double magnitudes = std::fabs(result);
  if (reduction_ == Reduction::kMulSum) result *= Scalar(type_, 0);
  for (int rank = 1; rank < ranks_; ++rank) {
    const double term = Real(rank, pattern);
    magnitudes += std::fabs(term);
    switch (reduction_) {
      case Reduction::kSum:
      case Reduction::kAvg:
        result += term;
        break;
      case Reduction::kProd:
        result *= term;
        break;
      case Reduction::kMax:
        result = std::max(result, term);
        break;
      case Reduction::kMin:
        result = std::min(result, term);
        break;
      case Reduction::kMulSum:
        result += term * Scalar(type_, rank);
        break;
    }
  }
  if (reduction_ == Reduction::kAvg) result /= ranks_;
  Result reduced{Encode(type_, result), result, 0};
  if (exact_) return reduced;
  // Rounded are 1/n, each product with it, each sum, and here the reference itself (for double).
  const double unit = std::ldexp(1.0, -type_.precision);
  const double least = LeastNumber(type_);
  reduced.tolerance =
      std::expm1((active_ + 2) * std::log1p(unit)) * magnitudes / ranks_ + magnitudes * least / 2 + least;
  return reduced;
}

Terms::Result Terms::ReducedWhole(size_t pattern) const {
  uint64_t result = Whole(0, pattern);
  if (reduction_ == Reduction::kMulSum) result *= static_cast<uint64_t>(Scalar(type_, 0));
  for (int rank = 1; rank < ranks_; ++rank) {
    const uint64_t term = Whole(rank, pattern);
    const bool less =
        type_.is_signed ? static_cast<int64_t>(term) < static_cast<int64_t>(result) : term < result;
    switch (reduction_) {
      case Reduction::kSum:
      case Reduction::kAvg:
        result += term;
        break;
      case Reduction::kProd:
        result *= term;
        break;
      case Reduction::kMax:
        result = less ? result : term;
        break;
      case Reduction::kMin:
        result = less ? term : result;
        break;
      case Reduction::kMulSum:
        result += term * static_cast<uint64_t>(Scalar(type_, rank));
        break;
    }
  }
  if (reduction_ == Reduction::kAvg) {
    const auto ranks = static_cast<uint64_t>(ranks_);
    result = type_.is_signed ? static_cast<uint64_t>(static_cast<int64_t>(result) / ranks_) : result / ranks;
  }
  const int spare = 64 - static_cast<int>(8 * type_.bytes);
  return {result << spare >> spare, 0, 0};
}

Terms::Result Terms::Reduced(size_t pattern) const {
  return is_float() ? ReducedReal(pattern) : ReducedWhole(pattern);
}

}  // namespace c4::perf
