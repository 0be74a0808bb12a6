#include "benchmarks/perf_data.h"

#include <cmath>

#include "benchmarks/perf_terms.h"

namespace c4::perf {
namespace {

size_t PatternOf(size_t index, uint32_t round) {
  static_assert(Data::kPatterns == size_t{1} << 10);
  return HashOf(index, round, 0) >> 54;
}

uint64_t MovedBits(int rank, size_t index, uint32_t round) {
  return HashOf(index, round, static_cast<uint64_t>(rank) + 1);
}

// Calls `work` with an unsigned number of an element's size.
template <typename Work>
auto WithWord(size_t element_bytes, Work work) {
  switch (element_bytes) {
    case 1:
      return work(uint8_t{});
    case 2:
      return work(uint16_t{});
    case 4:
      return work(uint32_t{});
    default:
      return work(uint64_t{});
  }
}

template <typename Word, typename Value>
void FillWords(void* to, size_t count, Value value) {
  auto* const words = static_cast<Word*>(to);
  for (size_t i = 0; i < count; ++i) words[i] = static_cast<Word>(value(i));
}

// `forgive` is asked about elements with other bits than expected.
template <typename Word, typename Value, typename Forgive>
Mistakes CompareWords(const void* at, size_t count, const TypeInfo& type, Value value, Forgive forgive) {
  Mistakes mistakes;
  const auto* const words = static_cast<const Word*>(at);
  for (size_t i = 0; i < count; ++i) {
    const auto expected = static_cast<Word>(value(i));
    if (words[i] == expected || forgive(i, words[i])) continue;
    if (mistakes.count++ > 0) continue;
    mistakes.first = i;
    mistakes.got = Decode(type, words[i]);
    mistakes.expected = Decode(type, expected);
  }
  return mistakes;
}

constexpr auto kNever = [](size_t, uint64_t) { return false; };

}  // namespace

Data::Data(ncclDataType_t type, std::optional<Reduction> reduction, Place place)
    : type_(InfoOf(type)), rank_(place.rank), reduced_(reduction.has_value()) {
  if (!reduced_) return;
  const Terms terms(type_, *reduction, place.ranks);
  for (size_t pattern = 0; pattern < kPatterns; ++pattern) {
    own_.push_back(terms.Sent(place.rank, pattern));
    const Terms::Result result = terms.Reduced(pattern);
    result_.push_back(result.bits);
    exact_.push_back(result.exact);
    tolerance_.push_back(result.tolerance);
  }
}

int Data::Scalar(ncclDataType_t type, int rank) {
  return Terms::Scalar(InfoOf(type), rank);
}

void Data::Fill(void* to, size_t count, uint32_t round) const {
  WithWord(type_.bytes, [&](auto word) {
    using Word = decltype(word);
    if (reduced_) {
      FillWords<Word>(to, count, [&](size_t i) { return own_[PatternOf(i, round)]; });
    } else {
      FillWords<Word>(to, count, [&](size_t i) { return MovedBits(rank_, i, round); });
    }
  });
}

Mistakes Data::CompareSent(const void* at, size_t count, int rank, size_t source, uint32_t round) const {
  return WithWord(type_.bytes, [&](auto word) {
    using Word = decltype(word);
    if (reduced_) {
      return CompareWords<Word>(
          at, count, type_, [&](size_t i) { return own_[PatternOf(source + i, round)]; }, kNever);
    }
    return CompareWords<Word>(
        at, count, type_, [&](size_t i) { return MovedBits(rank, source + i, round); }, kNever);
  });
}

Mistakes Data::CompareReduced(const void* at, size_t count, size_t source, uint32_t round) const {
  return WithWord(type_.bytes, [&](auto word) {
    using Word = decltype(word);
    // Two zeros are one, and an average may be rounded.
    const auto forgive = [&](size_t i, uint64_t bits) {
      if (type_.precision == 0) return false;
      const size_t pattern = PatternOf(source + i, round);
      return std::fabs(Decode(type_, bits) - exact_[pattern]) <= tolerance_[pattern];
    };
    return CompareWords<Word>(
        at, count, type_, [&](size_t i) { return result_[PatternOf(source + i, round)]; }, forgive);
  });
}

}  // namespace c4::perf
