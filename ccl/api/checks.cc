#include "ccl/api/checks.h"

#include <cstdint>

#include "ccl/base/data_type.h"

namespace c4::api {
namespace {

Result BadType(int type) {
  return Fail(ncclInvalidArgument, "%d is not a data type (0 to %d are)", type,
              static_cast<int>(ncclNumTypes) - 1);
}

Result CheckReduction(int number) {
  if (number >= 0 && number < ncclNumOps) return Ok();
  return Fail(ncclInvalidArgument,
              "%d is not a reduction (0 to %d are), nor an operator that ncclRedOpCreatePreMulSum made",
              number, static_cast<int>(ncclNumOps) - 1);
}

}  // namespace

Result CheckNotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return Ok();
  return Fail(ncclInvalidArgument, "the argument %s is NULL", name);
}

Result CheckOperation(const Operation& operation) {
  const int type = NumberOf(operation.data_type);
  const size_t element_bytes = ElementBytes(type);
  if (element_bytes == 0) return BadType(type);
  C4_RETURN_IF_ERROR(CheckReduction(NumberOf(operation.reduction)));
  // A negative number that was turned into a size_t is far beyond what can be addressed.
  if (operation.count > static_cast<size_t>(PTRDIFF_MAX) / element_bytes) {
    return Fail(ncclInvalidArgument,
                "a count of %zu elements is more than memory can hold (was it negative?)", operation.count);
  }
  if (operation.count == 0) return Ok();
  if (operation.function != wire::kRecv) C4_RETURN_IF_ERROR(CheckNotNull(operation.send_buffer, "sendbuff"));
  if (operation.function == wire::kSend) return Ok();
  return CheckNotNull(operation.recv_buffer, "recvbuff");
}

}  // namespace c4::api
