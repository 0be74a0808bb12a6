#include "ccl/api/reductions.h"

#include <atomic>
#include <cstring>

#include "ccl/api/checks.h"
#include "ccl/base/data_type.h"

namespace c4::api {
namespace {

constexpr uint64_t kNumbers = uint64_t{ncclMaxRedOp} - ncclNumOps + 1;
std::atomic<uint64_t> numbers_taken{0};

Result Unknown(int number) {
  return Fail(
      ncclInvalidArgument,
      "%d is not a reduction (0 to %d are), nor an operator that ncclRedOpCreatePreMulSum made on this "
      "communicator and ncclRedOpDestroy has left there",
      number, static_cast<int>(ncclNumOps) - 1);
}

}  // namespace

Result UserReductions::Create(const void* scalar, ncclDataType_t data_type, ncclScalarResidence_t residence,
                              int* number) {
  Made made{NumberOf(data_type), nullptr, {}};
  const size_t bytes = ElementBytes(made.data_type);
  if (bytes == 0) return BadType(made.data_type);
  C4_RETURN_IF_ERROR(CheckNotNull(scalar, "scalar"));
  switch (NumberOf(residence)) {
    case ncclScalarHostImmediate:
      memcpy(made.factor, scalar, bytes);
      break;
    case ncclScalarDevice:
      made.scalar = scalar;
      break;
    default:
      return Fail(ncclInvalidArgument, "%d is no residence of a scalar (0 and 1 are)", NumberOf(residence));
  }
  do {
    *number = static_cast<int>(uint64_t{ncclNumOps} + numbers_taken.fetch_add(1) % kNumbers);
  } while (live_.count(*number) != 0);
  live_.emplace(*number, made);
  return Ok();
}

Result UserReductions::Destroy(int number) {
  if (number >= 0 && number < ncclNumOps) {
    return Fail(ncclInvalidArgument, "%d is a reduction of NCCL's own, which cannot be destroyed", number);
  }
  return live_.erase(number) == 1 ? Ok() : Unknown(number);
}

Result UserReductions::Resolve(Operation* operation) const {
  const int number = NumberOf(operation->reduction);
  if (number >= 0 && number < ncclNumOps) return Ok();
  const auto found = live_.find(number);
  if (found == live_.end()) return Unknown(number);
  const Made& made = found->second;
  const int type = NumberOf(operation->data_type);
  if (made.data_type != type) {
    return Fail(ncclInvalidArgument,
                "the reduction %d was made for data type %d and cannot be used with data type %d", number,
                made.data_type, type);
  }
  operation->reduction = ncclSum;
  operation->scales = true;
  memcpy(operation->factor, made.scalar == nullptr ? made.factor : made.scalar, ElementBytes(type));
  return Ok();
}

}  // namespace c4::api
