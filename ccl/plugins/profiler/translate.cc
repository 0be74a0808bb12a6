#include "ccl/plugins/profiler/translate.h"

#include <iterator>

namespace c4::profiler {
namespace {

template <size_t kCount>
uint8_t PlaceOf(const char* name, const char* const (&names)[kCount]) {
  for (size_t i = 0; i < kCount; ++i) {
    if (strcmp(name, names[i]) == 0) return static_cast<uint8_t>(i);
  }
  return kCount - 1;
}

}  // namespace

uint8_t OldFunction(const char* name) {
  static constexpr const char* kNames[] = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                           "AllReduce", "SendRecv", "Send",      "Recv"};
  return PlaceOf(name, kNames);
}

uint8_t OldDataType(const char* name) {
  static constexpr const char* kNames[] = {"ncclInt8",    "ncclUint8",   "ncclInt32",   "ncclUint32",
                                           "ncclInt64",   "ncclUint64",  "ncclFloat16", "ncclFloat32",
                                           "ncclFloat64", "ncclBfloat16"};
  return PlaceOf(name, kNames);
}

uint8_t OldAlgorithm(const char* name) {
  static constexpr const char* kNames[] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                           "NVLS_TREE", "PAT"};
  return PlaceOf(name, kNames);
}

uint8_t OldProtocol(const char* name) {
  static constexpr const char* kNames[] = {"LL", "LL128", "SIMPLE"};
  return PlaceOf(name, kNames);
}

}  // namespace c4::profiler
