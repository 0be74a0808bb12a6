#include "tests/unit/ccl/reduce_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <type_traits>

namespace c4::host {
namespace {

// Positive values by code: the finite ones, and last what the next one would be.
const std::vector<double>& Values(const SmallFloatFormat& format) {
  static std::map<const SmallFloatFormat*, std::vector<double>> tables;
  std::vector<double>& table = tables[&format];
  if (!table.empty()) return table;
  const uint32_t exponents = 1u << format.exponent_bits;
  const uint32_t mantissas = 1u << format.mantissa_bits;
  const int bias = static_cast<int>(exponents) / 2 - 1;
  // With infinity the last exponent is not for numbers; without, its last mantissa is not.
  const uint32_t codes = format.has_infinity ? (exponents - 1) * mantissas : exponents * mantissas - 1;
  for (uint32_t code = 0; code <= codes; ++code) {
    const uint32_t exponent = code / mantissas;
    const uint32_t mantissa = code % mantissas;
    table.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - format.mantissa_bits)
                                  : std::ldexp(mantissas + mantissa,
                                               static_cast<int>(exponent) - bias - format.mantissa_bits));
  }
  return table;
}

// One element, as numbers of a type wide enough that nothing is lost before the last rounding.
template <class T>
T Load(const Bytes& from, size_t i) {
  T value;
  memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void Append(Bytes* to, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  to->insert(to->end(), bytes, bytes + sizeof(T));
}

template <class T>
T ChooseFloat(ncclRedOp_t op, T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  const bool below = a < b || (a == b && std::signbit(a) && !std::signbit(b));
  return (op == ncclMin) == below ? a : b;
}

template <class T>
T Apply(ncclRedOp_t op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    // The double of a sum or product of floats, rounded to a float, is what a float operation rounds to.
    const double x = a;
    const double y = b;
    if (op == ncclMax || op == ncclMin) return ChooseFloat(op, a, b);
    return static_cast<T>(op == ncclProd ? x * y : x + y);
  } else {
    using Wide = unsigned __int128;
    if (op == ncclMax) return std::max(a, b);
    if (op == ncclMin) return std::min(a, b);
    return static_cast<T>(op == ncclProd ? static_cast<Wide>(a) * static_cast<Wide>(b)
                                         : static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <class T>
T Divide(T value, uint64_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<double>(value) / static_cast<double>(static_cast<T>(divisor)));
  } else {
    return static_cast<T>(static_cast<__int128>(value) / static_cast<__int128>(divisor));
  }
}

// How elements of a type are read and written; `Number` is what they are computed as.
template <class T>
struct NativeElements {
  using Number = T;
  size_t bytes() const { return sizeof(T); }
  T Get(const Bytes& from, size_t i) const { return Load<T>(from, i); }
  void Put(Bytes* to, T value) const { Append(to, value); }
};
struct SmallElements {
  using Number = float;
  const SmallFloatFormat& format;
  size_t bytes() const { return static_cast<size_t>(1 + format.exponent_bits + format.mantissa_bits) / 8; }
  float Get(const Bytes& from, size_t i) const {
    const uint32_t code = bytes() == 1 ? Load<uint8_t>(from, i) : Load<uint16_t>(from, i);
    return static_cast<float>(DecodeSmallFloat(format, code));
  }
  void Put(Bytes* to, float value) const {
    const uint32_t code = EncodeSmallFloat(format, value);
    bytes() == 1 ? Append(to, static_cast<uint8_t>(code)) : Append(to, static_cast<uint16_t>(code));
  }
};

// Calls `with` with the elements of `type`.
template <class Function>
Bytes WithElements(ncclDataType_t type, Function with) {
  switch (type) {
    case ncclInt8:
      return with(NativeElements<int8_t>());
    case ncclUint8:
      return with(NativeElements<uint8_t>());
    case ncclInt32:
      return with(NativeElements<int32_t>());
    case ncclUint32:
      return with(NativeElements<uint32_t>());
    case ncclInt64:
      return with(NativeElements<int64_t>());
    case ncclUint64:
      return with(NativeElements<uint64_t>());
    case ncclFloat32:
      return with(NativeElements<float>());
    case ncclFloat64:
      return with(NativeElements<double>());
    default:
      return with(SmallElements{*FindSmallFloat(type)});
  }
}

// Each element of `in` by way of `function`.
template <class Elements, class Function>
Bytes Each(const Elements& elements, const Bytes& in, Function function) {
  Bytes out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size() / elements.bytes(); ++i)
    elements.Put(&out, function(i, elements.Get(in, i)));
  return out;
}

}  // namespace

const SmallFloatFormat* FindSmallFloat(ncclDataType_t type) {
  static const SmallFloatFormat half = {5, 10, true, false, 0x7e00};
  static const SmallFloatFormat bfloat16 = {8, 7, true, false, 0x7fc0};
  static const SmallFloatFormat e4m3 = {4, 3, false, true, 0x7f};
  static const SmallFloatFormat e5m2 = {5, 2, true, true, 0x7f};
  switch (type) {
    case ncclFloat16:
      return &half;
    case ncclBfloat16:
      return &bfloat16;
    case ncclFloat8e4m3:
      return &e4m3;
    case ncclFloat8e5m2:
      return &e5m2;
    default:
      return nullptr;
  }
}

double DecodeSmallFloat(const SmallFloatFormat& format, uint32_t code) {
  const std::vector<double>& values = Values(format);
  const uint32_t sign = 1u << (format.exponent_bits + format.mantissa_bits);
  const uint32_t magnitude = code & (sign - 1);
  double value = std::numeric_limits<double>::quiet_NaN();
  if (magnitude + 1 < values.size()) {
    value = values[magnitude];
  } else if (format.has_infinity && magnitude + 1 == values.size()) {
    value = std::numeric_limits<double>::infinity();
  }
  return (code & sign) != 0 ? -value : value;
}

uint32_t EncodeSmallFloat(const SmallFloatFormat& format, double value) {
  if (std::isnan(value)) return format.nan;
  const std::vector<double>& values = Values(format);
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  uint32_t code = static_cast<uint32_t>(above - values.begin());  // at or above
  if (above == values.end()) --code;
  if (above != values.end() && above != values.begin() && *above != magnitude) {
    const double to_upper = *above - magnitude;
    const double to_lower = magnitude - *(above - 1);
    if (to_lower < to_upper || (to_lower == to_upper && code % 2 == 1)) --code;
  }
  if (format.saturates) code = std::min(code, static_cast<uint32_t>(values.size()) - 2);
  return code | (std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0);
}

Bytes ExpectCombined(ncclDataType_t type, ncclRedOp_t op, const std::vector<Bytes>& sources) {
  return WithElements(type, [&](const auto& elements) {
    return Each(elements, sources[0], [&](size_t i, auto value) {
      for (size_t s = 1; s < sources.size(); ++s) value = Apply(op, value, elements.Get(sources[s], i));
      return value;
    });
  });
}

Bytes ExpectScaled(ncclDataType_t type, const Bytes& in, const Bytes& factor) {
  return WithElements(type, [&](const auto& elements) {
    return Each(elements, in,
                [&](size_t, auto value) { return Apply(ncclProd, value, elements.Get(factor, 0)); });
  });
}

Bytes ExpectDivided(ncclDataType_t type, const Bytes& in, uint64_t divisor) {
  return WithElements(type, [&](const auto& elements) {
    return Each(elements, in, [&](size_t, auto value) { return Divide(value, divisor); });
  });
}

}  // namespace c4::host
