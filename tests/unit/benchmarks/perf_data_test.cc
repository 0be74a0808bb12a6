// Data of the measuring programs: every right way to reduce it is accepted, and mistakes are not.
#include "benchmarks/perf_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace c4::perf {
namespace {

constexpr size_t kElements = 250;
constexpr uint32_t kRound = 3;

// One element of a type, computed with as its users do: each result is rounded to the type.
class Element {
 public:
  Element(const TypeInfo& type, uint64_t bits) : type_(&type), bits_(bits) {}

  static Element Of(const TypeInfo& type, double value) { return {type, Encode(type, value)}; }
  uint64_t bits() const { return bits_; }

  Element Combine(const Element& other, Reduction reduction) const {
    if (type_->precision > 0) {
      const double a = Decode(*type_, bits_);
      const double b = Decode(*type_, other.bits_);
      if (reduction == Reduction::kProd) return Of(*type_, a * b);
      if (reduction == Reduction::kMax) return Of(*type_, std::max(a, b));
      if (reduction == Reduction::kMin) return Of(*type_, std::min(a, b));
      return Of(*type_, a + b);
    }
    if (reduction == Reduction::kProd) return Cut(bits_ * other.bits_);
    const bool less = type_->is_signed ? Signed() < other.Signed() : bits_ < other.bits_;
    if (reduction == Reduction::kMax) return less ? other : *this;
    if (reduction == Reduction::kMin) return less ? *this : other;
    return Cut(bits_ + other.bits_);
  }

  Element Times(const Element& other) const { return Combine(other, Reduction::kProd); }
  Element DividedBy(int ranks) const {
    if (type_->precision > 0) return Of(*type_, Decode(*type_, bits_) / ranks);
    if (type_->is_signed) return Cut(static_cast<uint64_t>(Signed() / ranks));
    return Cut(bits_ / static_cast<uint64_t>(ranks));
  }

 private:
  int64_t Signed() const {
    const size_t spare = 64 - 8 * type_->bytes;
    return static_cast<int64_t>(bits_ << spare) >> spare;
  }
  Element Cut(uint64_t bits) const {
    const size_t spare = 64 - 8 * type_->bytes;
    return {*type_, bits << spare >> spare};
  }

  const TypeInfo* type_;
  uint64_t bits_;
};

// What all ranks send.
struct World {
  const TypeInfo& type;
  Reduction reduction;
  int ranks;
  std::vector<Data> data;
  std::vector<std::vector<char>> sent;

  World(const TypeInfo& info, Reduction op, int count, size_t elements = kElements)
      : type(info), reduction(op), ranks(count) {
    for (int rank = 0; rank < ranks; ++rank) {
      data.emplace_back(type.type, reduction, Place{rank, ranks});
      sent.emplace_back(elements * type.bytes);
      data.back().Fill(sent.back().data(), elements, kRound);
    }
  }

  Element At(int rank, size_t index) const {
    uint64_t bits = 0;
    memcpy(&bits, sent[static_cast<size_t>(rank)].data() + index * type.bytes, type.bytes);
    return {type, bits};
  }

  // The reduction over `order`, one after the other. An average either by 1/n beforehand or by n afterwards.
  std::vector<char> Reduce(const std::vector<int>& order, bool divide) const {
    std::vector<char> result(sent.front().size());
    for (size_t i = 0; i < result.size() / type.bytes; ++i) {
      Element element = Scaled(order.front(), i, divide);
      for (size_t j = 1; j < order.size(); ++j)
        element = element.Combine(Scaled(order[j], i, divide), reduction);
      if (reduction == Reduction::kAvg && divide) element = element.DividedBy(ranks);
      const uint64_t bits = element.bits();
      memcpy(result.data() + i * type.bytes, &bits, type.bytes);
    }
    return result;
  }

  int64_t Wrong(const std::vector<char>& result) const {
    return data.front().CompareReduced(result.data(), result.size() / type.bytes, 0, kRound).count;
  }

 private:
  Element Scaled(int rank, size_t index, bool divide) const {
    const Element element = At(rank, index);
    if (reduction == Reduction::kMulSum)
      return element.Times(Element::Of(type, Data::Scalar(type.type, rank)));
    if (reduction == Reduction::kAvg && !divide) return element.Times(Element::Of(type, 1.0 / ranks));
    return element;
  }
};

std::vector<int> Order(int ranks) {
  std::vector<int> order(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::string Name(const World& world) {
  return std::string(world.type.name) + " " + InfoOf(world.reduction).name + " of " +
         std::to_string(world.ranks);
}

TEST(PerfTypes, KnownCodes) {
  const auto code = [](ncclDataType_t type, double value) { return Encode(InfoOf(type), value); };
  EXPECT_EQ(code(ncclFloat16, 1), 0x3c00u);
  EXPECT_EQ(code(ncclFloat16, -65504), 0xfbffu);
  EXPECT_EQ(code(ncclFloat16, 2049), 0x6800u);  // ties to even
  EXPECT_EQ(code(ncclFloat16, 2051), 0x6802u);
  EXPECT_EQ(code(ncclFloat16, std::ldexp(1, -24)), 1u);
  EXPECT_EQ(code(ncclBfloat16, 1), 0x3f80u);
  EXPECT_EQ(code(ncclFloat8e4m3, 448), 0x7eu);
  EXPECT_EQ(code(ncclFloat8e4m3, 1), 0x38u);
  EXPECT_EQ(code(ncclFloat8e5m2, 57344), 0x7bu);
  EXPECT_EQ(code(ncclFloat8e5m2, -1), 0xbcu);
  EXPECT_EQ(code(ncclFloat32, 1), 0x3f800000u);
  EXPECT_EQ(code(ncclInt8, -1), 0xffu);
  EXPECT_EQ(code(ncclInt32, -2), 0xfffffffeu);
  EXPECT_EQ(Decode(InfoOf(ncclInt32), 0xfffffffeu), -2);
  EXPECT_EQ(Decode(InfoOf(ncclUint8), 0xffu), 255);
  EXPECT_TRUE(std::isnan(Decode(InfoOf(ncclFloat8e4m3), 0x7f)));
  EXPECT_TRUE(std::isinf(Decode(InfoOf(ncclFloat8e5m2), 0x7c)));
  EXPECT_EQ(LeastNumber(InfoOf(ncclFloat8e4m3)), std::ldexp(1, -9));
}

TEST(PerfTypes, EveryCodeOfTheSmallTypesComesBack) {
  for (const TypeInfo& type : AllTypes()) {
    if (type.bytes > 2) continue;
    for (uint64_t bits = 0; bits < uint64_t{1} << (8 * type.bytes); ++bits) {
      const double value = Decode(type, bits);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(Encode(type, value), bits) << type.name << " " << value;
    }
  }
}

TEST(PerfData, EveryRightReductionIsAccepted) {
  std::mt19937 random(7);
  for (const int ranks : {1, 2, 3, 4, 7, 12}) {
    for (const TypeInfo& type : AllTypes()) {
      for (const ReductionInfo& reduction : AllReductions()) {
        const World world(type, reduction.reduction, ranks, ranks > 8 ? 60 : kElements);
        std::vector<int> order = Order(ranks);
        EXPECT_EQ(world.Wrong(world.Reduce(order, true)), 0) << Name(world);
        std::shuffle(order.begin(), order.end(), random);
        EXPECT_EQ(world.Wrong(world.Reduce(order, true)), 0) << Name(world) << ", shuffled";
        if (reduction.reduction != Reduction::kAvg || type.precision == 0) continue;
        EXPECT_EQ(world.Wrong(world.Reduce(order, false)), 0) << Name(world) << ", multiplied by 1/n";
      }
    }
  }
}

// Where small types leave most ranks zero at each place, those of another place count.
TEST(PerfData, AMissingRankShows) {
  for (const int ranks : {2, 3, 8, 12}) {
    for (const TypeInfo& type : AllTypes()) {
      for (const ReductionInfo& reduction : AllReductions()) {
        const World world(type, reduction.reduction, ranks);
        for (int missing = 0; missing < ranks; missing += 1 + ranks / 4) {
          std::vector<int> order = Order(ranks);
          order.erase(order.begin() + missing);
          EXPECT_GT(world.Wrong(world.Reduce(order, true)), 0) << Name(world) << " without " << missing;
          if (reduction.reduction == Reduction::kMax || reduction.reduction == Reduction::kMin) continue;
          order.push_back(order.front());
          EXPECT_GT(world.Wrong(world.Reduce(order, true)), 0) << Name(world) << " without " << missing;
        }
      }
    }
  }
}

TEST(PerfData, AnotherPlaceOrRoundShows) {
  for (const int ranks : {2, 5, 8}) {
    for (const TypeInfo& type : AllTypes()) {
      for (const ReductionInfo& reduction : AllReductions()) {
        const World world(type, reduction.reduction, ranks);
        const std::vector<char> result = world.Reduce(Order(ranks), true);
        const Data& data = world.data.front();
        const auto least = static_cast<int64_t>(kElements / 4);
        for (const size_t shift : {1, 16, 4096})
          EXPECT_GT(data.CompareReduced(result.data(), kElements, shift, kRound).count, least) << Name(world);
        EXPECT_GT(data.CompareReduced(result.data(), kElements, 0, kRound + 1).count, least) << Name(world);
      }
    }
  }
}

TEST(PerfData, MovedDataTellsItsOrigin) {
  for (const TypeInfo& type : AllTypes()) {
    const Data sender(type.type, std::nullopt, {2, 4});
    const Data receiver(type.type, std::nullopt, {1, 4});
    std::vector<char> sent(kElements * type.bytes);
    sender.Fill(sent.data(), kElements, kRound);
    const char* const tail = sent.data() + 50 * type.bytes;
    EXPECT_EQ(receiver.CompareSent(tail, kElements - 50, 2, 50, kRound).count, 0) << type.name;
    const auto most = static_cast<int64_t>((kElements - 50) * 9 / 10);
    EXPECT_GT(receiver.CompareSent(tail, kElements - 50, 3, 50, kRound).count, most) << type.name;
    EXPECT_GT(receiver.CompareSent(tail, kElements - 50, 2, 49, kRound).count, most) << type.name;
    EXPECT_GT(receiver.CompareSent(tail, kElements - 50, 2, 50, kRound + 1).count, most) << type.name;
  }
}

TEST(PerfData, SaysWhatIsWrong) {
  const World world(InfoOf(ncclFloat), Reduction::kSum, 2);
  std::vector<char> result = world.Reduce(Order(2), true);
  const float nonsense = -77;
  memcpy(result.data() + 5 * sizeof(float), &nonsense, sizeof nonsense);
  const Mistakes mistakes = world.data.front().CompareReduced(result.data(), kElements, 0, kRound);
  EXPECT_EQ(mistakes.count, 1);
  EXPECT_EQ(mistakes.first, 5u);
  EXPECT_EQ(mistakes.got, -77);
}

}  // namespace
}  // namespace c4::perf
