// NCCL's words for its functions and data types, as events carry them. Pure.
#pragma once

#include <cstdint>

#include "wire/segment.h"

namespace c4::profiler {

// kFunctionNone for what is no operation that the program can call, and for null.
wire::Function FunctionOf(const char* name);
// NCCL's number; 255 for an unknown name, and for null.
uint8_t DataTypeOf(const char* name);

}  // namespace c4::profiler
