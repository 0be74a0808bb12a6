// Reductions that the program made for a communicator (ncclRedOpCreatePreMulSum): a sum of values which each
// rank has first multiplied by a factor of its own.
//
// A number is not used again before all others have been, in the whole process: one that was destroyed, or
// that belongs to another communicator, is recognised. Not thread-safe: the communicator's call mutex guards
// its table. Errors are ncclInvalidArgument.
#pragma once

#include <map>

#include "ccl/engine/engine.h"

namespace c4::api {

class UserReductions {
 public:
  // `scalar` is one element of `data_type`. ncclScalarHostImmediate: read now; ncclScalarDevice: read
  // whenever an operation with the reduction is called, for as long as the reduction lives.
  Result Create(const void* scalar, ncclDataType_t data_type, ncclScalarResidence_t residence, int* number);
  Result Destroy(int number);

  // What `operation` names as its reduction becomes what an engine is told: one of NCCL's own, or a sum of
  // scaled values.
  Result Resolve(Operation* operation) const;

  size_t size() const { return live_.size(); }

 private:
  struct Made {
    int data_type;
    const void* scalar;  // nullptr: `factor` holds its value
    alignas(8) unsigned char factor[8];
  };
  std::map<int, Made> live_;
};

}  // namespace c4::api
