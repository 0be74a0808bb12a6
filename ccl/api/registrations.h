// Memory that the program registered with a communicator (ncclCommRegister, ncclCommWindowRegister). On host
// memory there is nothing to be prepared: a registration is remembered, so that giving back what was not
// given out is an error.
//
// A number is given out once in the whole process, so that a stale or foreign one is recognised. Not
// thread-safe: the communicator's call mutex guards its table. Errors are ncclInvalidArgument.
#pragma once

#include <cstdint>
#include <set>

#include "ccl/base/result.h"

namespace c4::api {

class Registrations {
 public:
  // `what` and `call` are for sentences: "a buffer", "ncclCommRegister".
  Registrations(const char* what, const char* call) : what_(what), call_(call) {}

  // *handle is odd, so it is no address that an allocator gave out.
  Result Add(const void* buffer, size_t bytes, uintptr_t* handle);
  // 0 is no error, as in NCCL.
  Result Remove(uintptr_t handle);

  size_t size() const { return live_.size(); }

 private:
  const char* const what_;
  const char* const call_;
  std::set<uintptr_t> live_;
};

}  // namespace c4::api
