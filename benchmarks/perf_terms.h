// What a rank contributes to a reduction at one pattern (perf_data.h), and what the reduction of all is.
// Whole numbers are computed modulo 2^64 and sign-extended; floating-point types in double, where everything
// here is exact but an average. Pure; any thread.
#pragma once

#include <cstdint>

#include "benchmarks/perf_shapes.h"
#include "benchmarks/perf_types.h"

namespace c4::perf {

class Terms {
 public:
  Terms(const TypeInfo& type, Reduction reduction, int ranks);

  // The bits that `rank` sends.
  uint64_t Sent(int rank, size_t pattern) const;

  struct Result {
    uint64_t bits = 0;
    double exact = 0;      // floating-point types
    double tolerance = 0;  // 0: the result has to be `bits`
  };
  Result Reduced(size_t pattern) const;

  static int Scalar(const TypeInfo& type, int rank);

 private:
  bool is_float() const { return type_.precision > 0; }
  // Whole numbers without sign go round, so that any will do.
  bool Wraps() const;
  // How many ranks contribute at a pattern; the others send the neutral element.
  int Slot(int rank, size_t pattern) const;
  int64_t Weight(int rank, size_t pattern) const;
  double Factor(int rank, size_t pattern) const;
  double Real(int rank, size_t pattern) const;
  uint64_t Whole(int rank, size_t pattern) const;
  Result ReducedReal(size_t pattern) const;
  Result ReducedWhole(size_t pattern) const;
  // `value` cut to the type's width, then widened again.
  uint64_t Fit(uint64_t value) const;

  const TypeInfo& type_;
  const Reduction reduction_;
  const int ranks_;
  bool exact_ = true;
  int active_ = 1;
  int64_t limit_ = 1;  // of a weight
  int shift_ = 0;      // averages: weights are multiplied by 2^shift_
};

uint64_t HashOf(uint64_t a, uint64_t b, uint64_t c);

}  // namespace c4::perf
