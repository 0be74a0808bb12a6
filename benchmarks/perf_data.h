// Data that makes wrong results visible: what each rank sends, and what a reduction of it has to give. A
// value depends on the rank, the place in the buffer and the round, so that a rank that is missing or counted
// twice, a chunk at the wrong place or a result of an earlier operation gives another one. Pure; any thread.
//
// Data that is only moved is any bits. Data to be reduced is chosen so that the result is exact in its type,
// in whatever order and precision the ranks' parts come together: whole numbers whose every partial result
// the type can hold; small types reach that by zeros on some ranks at each place, others at the next. Two
// things are not so: unsigned sums and products wrap around, as the type does; and the average of a
// floating-point type over a number of ranks that is no power of two is rounded, within a bound that follows
// from the number of roundings. Whole numbers average towards zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "benchmarks/perf_shapes.h"
#include "benchmarks/perf_types.h"

namespace c4::perf {

struct Mistakes {
  int64_t count = 0;
  size_t first = 0;  // index of the first, and its value
  double got = 0;
  double expected = 0;
};

class Data {
 public:
  // For rank place.rank; without a reduction, data to be moved.
  Data(ncclDataType_t type, std::optional<Reduction> reduction, Place place);

  const TypeInfo& type() const { return type_; }
  // The scalar that `rank` makes its operator of, for kMulSum.
  static int Scalar(ncclDataType_t type, int rank);

  // What this rank sends: elements 0 to count - 1.
  void Fill(void* to, size_t count, uint32_t round) const;

  // Compares the elements at `at` with what `rank` sent from its element `source` on. Of data to be reduced a
  // rank knows its own only.
  Mistakes CompareSent(const void* at, size_t count, int rank, size_t source, uint32_t round) const;
  // The same with the reduction of all ranks' elements.
  Mistakes CompareReduced(const void* at, size_t count, size_t source, uint32_t round) const;

  // Element values repeat in no order over this many patterns.
  static constexpr size_t kPatterns = 1024;

 private:
  const TypeInfo& type_;
  const int rank_;
  const bool reduced_;
  std::vector<uint64_t> own_;      // by pattern: what this rank sends
  std::vector<uint64_t> result_;   // the reduction, in the type
  std::vector<double> exact_;      // and before it was rounded; floating-point types only
  std::vector<double> tolerance_;  // how far from exact_ a result may lie; 0 where it has to be result_
};

}  // namespace c4::perf
