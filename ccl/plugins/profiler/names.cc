#include "ccl/plugins/profiler/names.h"

#include <string_view>

#include "ccl/include/nccl.h"

namespace c4::profiler {
namespace {

struct Function {
  std::string_view name;
  wire::Function function;
};
constexpr Function kFunctions[] = {
    {"AllReduce", wire::kAllReduce}, {"AllGather", wire::kAllGather}, {"ReduceScatter", wire::kReduceScatter},
    {"Send", wire::kSend},           {"Recv", wire::kRecv},           {"Broadcast", wire::kBroadcast},
    {"Reduce", wire::kReduce},       {"AlltoAll", wire::kAlltoAll},   {"Gather", wire::kGather},
    {"Scatter", wire::kScatter},
};

struct DataType {
  std::string_view name;
  ncclDataType_t type;
};
constexpr DataType kDataTypes[] = {
    {"ncclInt8", ncclInt8},       {"ncclBfloat16", ncclBfloat16},     {"ncclFloat16", ncclFloat16},
    {"ncclFloat32", ncclFloat32}, {"ncclFloat64", ncclFloat64},       {"ncclInt32", ncclInt32},
    {"ncclInt64", ncclInt64},     {"ncclUint8", ncclUint8},           {"ncclUint32", ncclUint32},
    {"ncclUint64", ncclUint64},   {"ncclFloat8e4m3", ncclFloat8e4m3}, {"ncclFloat8e5m2", ncclFloat8e5m2},
};

}  // namespace

wire::Function FunctionOf(const char* name) {
  if (name == nullptr) return wire::kFunctionNone;
  const std::string_view wanted(name);
  for (const Function& function : kFunctions) {
    if (function.name == wanted) return function.function;
  }
  return wire::kFunctionNone;
}

uint8_t DataTypeOf(const char* name) {
  if (name == nullptr) return 255;
  const std::string_view wanted(name);
  for (const DataType& type : kDataTypes) {
    if (type.name == wanted) return static_cast<uint8_t>(type.type);
  }
  return 255;
}

}  // namespace c4::profiler
