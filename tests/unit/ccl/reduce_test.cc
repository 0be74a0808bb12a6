// The reductions against tests/unit/ccl/reduce_reference.h, byte for byte, with each instruction set that
// this machine has.
#include "ccl/engine/host/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ccl/base/data_type.h"
#include "tests/unit/ccl/reduce_reference.h"

namespace c4::host {
namespace {

constexpr ncclRedOp_t kOperations[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
constexpr size_t kCounts[] = {0, 1, 3, 7, 15, 16, 17, 31, 63, 64, 65, 128, 129, 1000, 1023};
constexpr size_t kOffsets[] = {0, 1, 4, 31};
constexpr size_t kMost = 1023;
constexpr uint8_t kGuard = 0xa5;

std::vector<ncclDataType_t> Types() {
  std::vector<ncclDataType_t> types;
  for (int type = 0; type < ncclNumTypes; ++type) types.push_back(static_cast<ncclDataType_t>(type));
  return types;
}

std::vector<InstructionSet> Sets() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set : {InstructionSet::kBaseline, InstructionSet::kAvx2}) {
    if (HasInstructionSet(set)) sets.push_back(set);
  }
  return sets;
}

std::string Name(ncclDataType_t type, InstructionSet set) {
  return "type " + std::to_string(type) + ", instruction set " + std::to_string(static_cast<int>(set));
}

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
Bytes RandomNumbers(std::mt19937_64* random, size_t count) {
  const T low = std::numeric_limits<T>::denorm_min();
  const T special[] = {0,
                       -T{0},
                       1,
                       -1,
                       std::numeric_limits<T>::infinity(),
                       -std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::quiet_NaN(),
                       std::numeric_limits<T>::signaling_NaN(),
                       std::numeric_limits<T>::max(),
                       std::numeric_limits<T>::min(),
                       low,
                       -low * 5};
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(static_cast<T>(static_cast<int32_t>((*random)())) / 65536);
    if ((*random)() % 3 == 0) values.back() = special[(*random)() % std::size(special)];
    if ((*random)() % 8 == 0) values.back() = std::nan("") * -1;  // the other sign
  }
  return BytesOf(values);
}

// Any bytes are integers and small floats, NaN and the rest among them; of larger floats those would be rare.
Bytes RandomElements(ncclDataType_t type, std::mt19937_64* random, size_t count) {
  if (type == ncclFloat32) return RandomNumbers<float>(random, count);
  if (type == ncclFloat64) return RandomNumbers<double>(random, count);
  Bytes bytes(count * ElementBytes(type));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((*random)());
  return bytes;
}

// Memory that begins at a chosen distance from a multiple of 64, the bytes around it watched.
class Buffer {
 public:
  Buffer(const Bytes& content, size_t size, size_t offset)
      : size_(size), offset_(offset), memory_(offset + size + 64 + kAlign, kGuard) {
    for (size_t i = 0; i < size; ++i) data()[i] = content[i];
  }
  uint8_t* data() {
    const size_t beyond = reinterpret_cast<uintptr_t>(memory_.data()) % kAlign;
    return memory_.data() + (beyond == 0 ? 0 : kAlign - beyond) + offset_;
  }
  std::string Differs(const Bytes& expected, size_t element_bytes) {
    for (size_t i = 0; i < size_; ++i) {
      if (data()[i] != expected[i]) return "element " + std::to_string(i / element_bytes) + " differs";
    }
    const size_t first = static_cast<size_t>(data() - memory_.data());
    for (size_t i = 0; i < memory_.size(); ++i) {
      if ((i < first || i >= first + size_) && memory_[i] != kGuard) return "wrote outside of the buffer";
    }
    return "";
  }

 private:
  static constexpr size_t kAlign = 64;
  size_t size_;
  size_t offset_;
  std::vector<uint8_t> memory_;
};

TEST(Reduce, FindsWhatNcclHasAndNothingElse) {
  for (const ncclDataType_t type : Types()) {
    for (const ncclRedOp_t op : kOperations) {
      ASSERT_NE(FindReducer(type, op), nullptr);
      EXPECT_EQ(FindReducer(type, op)->element_bytes, ElementBytes(type));
    }
    EXPECT_EQ(FindReducer(type, ncclAvg), FindReducer(type, ncclSum));
    EXPECT_EQ(FindReducer(type, ncclNumOps), nullptr);
    EXPECT_EQ(FindReducer(type, ncclMaxRedOp), nullptr);
    EXPECT_NE(FindScale(type), nullptr);
    EXPECT_NE(FindDivide(type), nullptr);
  }
  EXPECT_EQ(FindReducer(ncclNumTypes, ncclSum), nullptr);
  EXPECT_EQ(FindScale(ncclNumTypes), nullptr);
  EXPECT_EQ(FindDivide(ncclNumTypes), nullptr);
}

// `alias`: which source the result is written over; the number of sources for none.
void CheckCombine(const Reducer& reducer, const std::vector<Bytes>& sources, const Bytes& expected,
                  size_t count, size_t offset, size_t alias, bool many) {
  const size_t size = count * reducer.element_bytes;
  std::vector<Buffer> buffers;
  std::vector<const void*> pointers;
  for (size_t s = 0; s < sources.size(); ++s) buffers.emplace_back(sources[s], size, (offset * (s + 1)) % 64);
  buffers.emplace_back(Bytes(size), size, offset);
  for (size_t s = 0; s < sources.size(); ++s) pointers.push_back(buffers[s].data());
  void* out = buffers[alias].data();
  if (many) {
    reducer.combine_many(out, pointers.data(), pointers.size(), count);
  } else {
    reducer.combine(out, pointers[0], pointers[1], count);
  }
  for (size_t b = 0; b <= sources.size(); ++b) {
    if (b == sources.size() && b != alias) continue;
    ASSERT_EQ(buffers[b].Differs(b == alias ? expected : sources[b], reducer.element_bytes), "")
        << "buffer " << b << ", " << count << " elements at offset " << offset << ", result in buffer "
        << alias;
  }
}

TEST(Reduce, CombinesAtAnySizeAlignmentAndInPlace) {
  std::mt19937_64 random(1);
  for (const ncclDataType_t type : Types()) {
    const std::vector<Bytes> sources = {RandomElements(type, &random, kMost),
                                        RandomElements(type, &random, kMost)};
    for (const ncclRedOp_t op : kOperations) {
      const Bytes expected = ExpectCombined(type, op, sources);
      for (const InstructionSet set : Sets()) {
        SCOPED_TRACE(Name(type, set) + ", operation " + std::to_string(op));
        for (const size_t count : kCounts) {
          for (const size_t offset : kOffsets) {
            for (const size_t alias : {0, 1, 2}) {
              ASSERT_NO_FATAL_FAILURE(
                  CheckCombine(*FindReducer(type, op, set), sources, expected, count, offset, alias, false));
            }
          }
        }
      }
    }
  }
}

TEST(Reduce, CombinesManyInOrderAndRoundsOnce) {
  std::mt19937_64 random(2);
  for (const ncclDataType_t type : Types()) {
    for (const size_t source_count : {2, 3, 4, 8, 11}) {
      std::vector<Bytes> sources;
      for (size_t s = 0; s < source_count; ++s) sources.push_back(RandomElements(type, &random, kMost));
      for (const ncclRedOp_t op : kOperations) {
        const Bytes expected = ExpectCombined(type, op, sources);
        for (const InstructionSet set : Sets()) {
          SCOPED_TRACE(Name(type, set) + ", operation " + std::to_string(op));
          for (const size_t count : {size_t{1}, size_t{65}, kMost}) {
            for (const size_t alias : {size_t{0}, source_count / 2, source_count - 1, source_count}) {
              ASSERT_NO_FATAL_FAILURE(
                  CheckCombine(*FindReducer(type, op, set), sources, expected, count, 3, alias, true));
            }
          }
        }
      }
    }
  }
}

// Every code of a small float with `others`, by every operation.
void CheckCodes(ncclDataType_t type, const std::vector<uint16_t>& others) {
  const size_t codes = size_t{1} << (8 * ElementBytes(type));
  std::vector<uint16_t> wide_a;
  std::vector<uint16_t> wide_b;
  for (const uint16_t other : others) {
    for (size_t code = 0; code < codes; ++code) {
      wide_a.push_back(static_cast<uint16_t>(code));
      wide_b.push_back(other);
    }
  }
  const auto narrow = [&](const std::vector<uint16_t>& wide) {
    return ElementBytes(type) == 2 ? BytesOf(wide) : Bytes(wide.begin(), wide.end());
  };
  const std::vector<Bytes> sources = {narrow(wide_a), narrow(wide_b)};
  for (const ncclRedOp_t op : kOperations) {
    const Bytes expected = ExpectCombined(type, op, sources);
    for (const InstructionSet set : Sets()) {
      Bytes out(expected.size());
      FindReducer(type, op, set)->combine(out.data(), sources[0].data(), sources[1].data(), wide_a.size());
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], expected[i]) << Name(type, set) << ", operation " << op << ", byte " << i;
      }
    }
  }
}

TEST(Reduce, EveryPairOfFloat8) {
  std::vector<uint16_t> all;
  for (uint16_t code = 0; code < 256; ++code) all.push_back(code);
  CheckCodes(ncclFloat8e4m3, all);
  CheckCodes(ncclFloat8e5m2, all);
}

TEST(Reduce, EveryHalfAndBfloat16) {
  // -0, -1, the largest denormal, the largest, infinity, and an odd number.
  CheckCodes(ncclFloat16, {0x8000, 0xbc00, 0x03ff, 0x7bff, 0x7c00, 0x3555});
  CheckCodes(ncclBfloat16, {0x8000, 0xbf80, 0x007f, 0x7f7f, 0x7f80, 0x3eab});
}

// Adding -0 changes nothing: each code is decoded and encoded again. This one knows no reference.
TEST(Reduce, CodesSurviveARoundTrip) {
  for (const ncclDataType_t type : {ncclFloat16, ncclBfloat16}) {
    const uint16_t infinity = type == ncclFloat16 ? 0x7c00 : 0x7f80;
    std::vector<uint16_t> in(65536);
    for (size_t code = 0; code < in.size(); ++code) in[code] = static_cast<uint16_t>(code);
    const std::vector<uint16_t> zeros(in.size(), 0x8000);
    for (const InstructionSet set : Sets()) {
      std::vector<uint16_t> out(in.size());
      FindReducer(type, ncclSum, set)->combine(out.data(), in.data(), zeros.data(), in.size());
      const uint16_t nan = type == ncclFloat16 ? 0x7e00 : 0x7fc0;
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(out[i], (in[i] & 0x7fff) > infinity ? nan : in[i]) << Name(type, set) << ", code " << i;
      }
    }
  }
  for (const ncclDataType_t type : {ncclFloat8e4m3, ncclFloat8e5m2}) {
    for (const InstructionSet set : Sets()) {
      for (int code = 0; code < 256; ++code) {
        const uint8_t in = static_cast<uint8_t>(code);
        const uint8_t zero = 0x80;
        uint8_t out = 0;
        FindReducer(type, ncclSum, set)->combine(&out, &in, &zero, 1);
        const int magnitude = code & 0x7f;
        int expected = code;
        if (type == ncclFloat8e5m2 && magnitude == 0x7c) expected = code - 1;  // infinity saturates
        if (magnitude > (type == ncclFloat8e5m2 ? 0x7c : 0x7e)) expected = 0x7f;
        ASSERT_EQ(out, expected) << Name(type, set) << ", code " << code;
      }
    }
  }
}

template <class T>
T CombineOne(ncclDataType_t type, ncclRedOp_t op, T a, T b) {
  T out{};
  FindReducer(type, op)->combine(&out, &a, &b, 1);
  return out;
}

TEST(Reduce, SpecialValues) {
  const float nan = std::nanf("");
  EXPECT_EQ(CombineOne(ncclFloat32, ncclMax, nan, 1.0f), 1.0f);
  EXPECT_EQ(CombineOne(ncclFloat32, ncclMax, 1.0f, nan), 1.0f);
  EXPECT_EQ(CombineOne(ncclFloat32, ncclMin, nan, 1.0f), 1.0f);
  EXPECT_TRUE(std::isnan(CombineOne(ncclFloat32, ncclMin, nan, -nan)));
  EXPECT_FALSE(std::signbit(CombineOne(ncclFloat32, ncclMax, -0.0f, 0.0f)));
  EXPECT_TRUE(std::signbit(CombineOne(ncclFloat32, ncclMin, 0.0f, -0.0f)));
  EXPECT_TRUE(std::isnan(CombineOne(ncclFloat64, ncclSum, INFINITY * 1.0, -INFINITY * 1.0)));
  EXPECT_EQ(CombineOne<uint16_t>(ncclFloat16, ncclSum, 0x7bff, 0x7bff), 0x7c00);   // infinity
  EXPECT_EQ(CombineOne<uint16_t>(ncclBfloat16, ncclSum, 0x7f7f, 0x7f7f), 0x7f80);  // infinity
  EXPECT_EQ(CombineOne<uint8_t>(ncclFloat8e4m3, ncclSum, 0x7e, 0x7e), 0x7e);       // 448
  EXPECT_EQ(CombineOne<uint8_t>(ncclFloat8e4m3, ncclProd, 0xfe, 0x7e), 0xfe);      // -448
  EXPECT_EQ(CombineOne<uint8_t>(ncclFloat8e5m2, ncclSum, 0x7b, 0x7b), 0x7b);       // 57344
  EXPECT_EQ(CombineOne<uint8_t>(ncclFloat8e5m2, ncclSum, 0x7c, 0x38), 0x7b);       // infinity
  EXPECT_EQ(CombineOne<uint8_t>(ncclFloat8e5m2, ncclSum, 0x7c, 0xfc), 0x7f);       // NaN
  EXPECT_EQ(CombineOne<int8_t>(ncclInt8, ncclSum, 127, 1), -128);
  EXPECT_EQ(CombineOne<int8_t>(ncclInt8, ncclMax, -1, 1), 1);
  EXPECT_EQ(CombineOne<uint8_t>(ncclUint8, ncclMax, 255, 1), 255);
  EXPECT_EQ(CombineOne<int64_t>(ncclInt64, ncclSum, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(CombineOne<int64_t>(ncclInt64, ncclMin, -1, 1), -1);
  EXPECT_EQ(CombineOne<uint64_t>(ncclUint64, ncclMin, UINT64_MAX, 1), 1u);
}

// 1 + 2^-11 + 2^-11 is above 1 in half only if the sum is not rounded in between.
TEST(Reduce, ManyHalvesAreRoundedOnce) {
  const uint16_t one = 0x3c00;
  const uint16_t half_step = 0x1000;
  const void* sources[] = {&one, &half_step, &half_step};
  uint16_t out = 0;
  FindReducer(ncclFloat16, ncclSum)->combine_many(&out, sources, 3, 1);
  EXPECT_EQ(out, 0x3c01);
  EXPECT_EQ(CombineOne(ncclFloat16, ncclSum, CombineOne(ncclFloat16, ncclSum, one, half_step), half_step),
            one);
}

TEST(Reduce, Scales) {
  std::mt19937_64 random(3);
  for (const ncclDataType_t type : Types()) {
    const Bytes in = RandomElements(type, &random, kMost);
    for (int round = 0; round < 20; ++round) {
      const Bytes factor = RandomElements(type, &random, 1);
      const Bytes expected = ExpectScaled(type, in, factor);
      for (const InstructionSet set : Sets()) {
        for (const size_t count : {size_t{0}, size_t{3}, size_t{64}, kMost}) {
          for (const bool in_place : {false, true}) {
            const size_t size = count * ElementBytes(type);
            Buffer from(in, size, 1);
            Buffer out(Bytes(size), size, 3);
            Buffer& to = in_place ? from : out;
            FindScale(type, set)(to.data(), from.data(), count, factor.data());
            ASSERT_EQ(to.Differs(expected, ElementBytes(type)), "") << Name(type, set) << ", count " << count;
          }
        }
      }
    }
  }
}

TEST(Reduce, Divides) {
  std::mt19937_64 random(4);
  constexpr uint64_t kOne = 1;
  for (const ncclDataType_t type : Types()) {
    Bytes in = RandomElements(type, &random, kMost);
    // The ends of the range, of every integer type.
    const size_t width = ElementBytes(type);
    std::fill(in.begin(), in.begin() + static_cast<ptrdiff_t>(width), 0xff);
    std::fill(in.begin() + static_cast<ptrdiff_t>(width), in.begin() + static_cast<ptrdiff_t>(2 * width), 0);
    in[2 * width - 1] = 0x80;
    for (const uint64_t divisor :
         {kOne, 2 * kOne, 3 * kOne, 7 * kOne, 8 * kOne, 127 * kOne, 128 * kOne, 255 * kOne, 641 * kOne,
          kOne << 31, (kOne << 32) - 1, kOne << 32, (kOne << 40) + 1, kOne << 63, UINT64_MAX}) {
      const Bytes expected = ExpectDivided(type, in, divisor);
      for (const InstructionSet set : Sets()) {
        for (const bool in_place : {false, true}) {
          Buffer from(in, in.size(), 1);
          Buffer out(Bytes(in.size()), in.size(), 3);
          Buffer& to = in_place ? from : out;
          FindDivide(type, set)(to.data(), from.data(), kMost, divisor);
          ASSERT_EQ(to.Differs(expected, width), "") << Name(type, set) << ", divisor " << divisor;
        }
      }
    }
  }
}

}  // namespace
}  // namespace c4::host
