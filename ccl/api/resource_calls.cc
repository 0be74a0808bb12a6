// The exported functions for what a program makes on a communicator beside operations: reductions of its own,
// and registered memory. All of it goes with the communicator.
#include <bit>
#include <cstdint>
#include <mutex>

#include "ccl/api/checks.h"
#include "ccl/api/export.h"
#include "ccl/api/group.h"
#include "ccl/api/handles.h"
#include "ccl/api/last_error.h"
#include "ccl/engine/vendor/library.h"
#include "ccl/include/nccl.h"

namespace c4::api {
namespace {

Result CreateReduction(ncclComm_t comm, const void* scalar, ncclDataType_t data_type,
                       ncclScalarResidence_t residence, ncclRedOp_t* made) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  C4_RETURN_IF_ERROR(CheckNotNull(made, "op"));
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  C4_RETURN_IF_ERROR(CheckAlive(*pin));
  int number = 0;
  C4_RETURN_IF_ERROR(pin->reductions.Create(scalar, data_type, residence, &number));
  *made = static_cast<ncclRedOp_t>(number);
  return Ok();
}

Result DestroyReduction(ncclComm_t comm, const ncclRedOp_t& reduction) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  return pin->reductions.Destroy(NumberOf(reduction));
}

// `table` is where the entry keeps registrations of this kind.
Result Register(ncclComm_t comm, Registrations Entry::*table, const void* buffer, size_t bytes,
                void** handle) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  C4_RETURN_IF_ERROR(CheckAlive(*pin));
  uintptr_t number = 0;
  C4_RETURN_IF_ERROR(((*pin).*table).Add(buffer, bytes, &number));
  *handle = std::bit_cast<void*>(number);
  return Ok();
}

Result Deregister(ncclComm_t comm, Registrations Entry::*table, const void* handle) {
  const Pin pin(comm);
  if (!pin) return BadHandle(comm);
  const std::lock_guard<std::mutex> lock(pin->call_mutex);
  return ((*pin).*table).Remove(reinterpret_cast<uintptr_t>(handle));
}

Result RegisterBuffer(ncclComm_t comm, const void* buffer, size_t bytes, void** handle) {
  C4_RETURN_IF_ERROR(CheckNotNull(handle, "handle"));
  *handle = nullptr;
  return Register(comm, &Entry::buffers, buffer, bytes, handle);
}

Result RegisterWindow(ncclComm_t comm, const void* buffer, size_t bytes, ncclWindow_t* window, int flags) {
  C4_RETURN_IF_ERROR(CheckNotNull(window, "win"));
  *window = nullptr;
  if ((flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0) {
    return Fail(ncclInvalidArgument, "winFlags = 0x%x has bits that this version does not know",
                static_cast<unsigned int>(flags));
  }
  if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    return Fail(ncclInvalidArgument, "buff = %p is not aligned to the %d bytes that a window needs", buffer,
                NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  void* handle = nullptr;
  C4_RETURN_IF_ERROR(Register(comm, &Entry::windows, buffer, bytes, &handle));
  *window = static_cast<ncclWindow_t>(handle);
  return Ok();
}

}  // namespace
}  // namespace c4::api

using c4::api::Entry;
using c4::api::Report;

extern "C" ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                                  ncclScalarResidence_t residence, ncclComm_t comm) {
  if (const c4::vendor::Api* const api = c4::vendor::ApiOf(comm)) {
    return api->RedOpCreatePreMulSum(op, scalar, datatype, residence, comm);
  }
  return Report("ncclRedOpCreatePreMulSum", comm,
                [&] { return c4::api::CreateReduction(comm, scalar, datatype, residence, op); });
}
C4_WEAK_TWIN(ncclRedOpCreatePreMulSum);

extern "C" ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  if (const c4::vendor::Api* const api = c4::vendor::ApiOf(comm)) return api->RedOpDestroy(op, comm);
  return Report("ncclRedOpDestroy", comm, [&] { return c4::api::DestroyReduction(comm, op); });
}
C4_WEAK_TWIN(ncclRedOpDestroy);

extern "C" ncclResult_t c4_host_ncclCommRegister(const ncclComm_t comm, void* buff, size_t size,
                                                 void** handle) {
  return Report("ncclCommRegister", comm, [&] { return c4::api::RegisterBuffer(comm, buff, size, handle); });
}

extern "C" ncclResult_t c4_host_ncclCommDeregister(const ncclComm_t comm, void* handle) {
  return Report("ncclCommDeregister", comm,
                [&] { return c4::api::Deregister(comm, &Entry::buffers, handle); });
}

extern "C" ncclResult_t c4_host_ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size,
                                                       ncclWindow_t* win, int winFlags) {
  return c4::api::ReportInGroup("ncclCommWindowRegister", comm,
                                [&] { return c4::api::RegisterWindow(comm, buff, size, win, winFlags); });
}

extern "C" ncclResult_t c4_host_ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return Report("ncclCommWindowDeregister", comm,
                [&] { return c4::api::Deregister(comm, &Entry::windows, win); });
}
