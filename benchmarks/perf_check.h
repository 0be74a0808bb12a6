// The buffers of one rank around a checked operation: filled before, compared whole afterwards. Elements that
// the operation has to write are compared with what they have to be; all others of both buffers, and guards
// before and behind each, have to be as they were. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "benchmarks/perf_data.h"
#include "benchmarks/perf_shapes.h"

namespace c4::perf {

// What has to be there before and behind each buffer.
inline constexpr size_t kGuardBytes = 4096;

struct CheckedCall {
  const Data* data = nullptr;
  Kind kind = Kind::kAllReduce;
  Shape shape;
  Place place;
  int root = 0;
  bool in_place = false;  // then `recv` holds both, and `send` is not looked at
  uint32_t round = 0;
  char* send = nullptr;
  char* recv = nullptr;
};

// Elements that both buffers need for a shape: the send buffer alone, and the receive buffer with room for
// what is sent in place.
size_t SendCapacity(const Shape& shape);
size_t RecvCapacity(const Shape& shape);

void Prepare(const CheckedCall& call);

// Elements that are wrong. With any, `first` says where the first is: "gave 1 instead of 2 at element 3".
int64_t CountWrong(const CheckedCall& call, std::string* first);

}  // namespace c4::perf
