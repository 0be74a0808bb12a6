// The exported functions that concern the library as a whole.
#include "ccl/api/checks.h"
#include "ccl/api/export.h"
#include "ccl/api/host_memory.h"
#include "ccl/api/last_error.h"
#include "ccl/base/knobs.h"
#include "ccl/base/log.h"
#include "ccl/engine/vendor/library.h"
#include "ccl/include/nccl.h"

namespace c4::api {
namespace {

Result GetVersion(int* version) {
  C4_RETURN_IF_ERROR(CheckNotNull(version, "version"));
  *version = NCCL_VERSION_CODE;
  return Ok();
}

// NCCL's own texts: programs compare and show them.
const char* ErrorText(const ncclResult_t& result) {
  switch (NumberOf(result)) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

// The memory has to suit the engine that new communicators will have; where that engine is not to be had,
// memory of another kind would only hide it.
Result Allocate(void** pointer, size_t bytes) {
  C4_RETURN_IF_ERROR(CheckNotNull(pointer, "ptr"));
  Engine* engine = nullptr;
  C4_RETURN_IF_ERROR(ChooseEngine(nullptr, &engine));
  return AllocateHostMemory(bytes, pointer);
}

}  // namespace
}  // namespace c4::api

using c4::api::Report;
namespace vendor = c4::vendor;

extern "C" ncclResult_t pncclGetVersion(int* version) {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) return api->GetVersion(version);
  return Report("ncclGetVersion", nullptr, [&] { return c4::api::GetVersion(version); });
}
C4_WEAK_TWIN(ncclGetVersion);

extern "C" const char* pncclGetErrorString(ncclResult_t result) {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) return api->GetErrorString(result);
  return c4::api::ErrorText(result);
}
C4_WEAK_TWIN(ncclGetErrorString);

// The vendor keeps one sentence for the process, whatever the communicator.
extern "C" const char* pncclGetLastError(ncclComm_t comm) {
  if (const vendor::Api* const api = vendor::ApiOf(comm); api != nullptr && api->GetLastError != nullptr) {
    const char* const sentence = api->GetLastError(comm);
    if (comm != nullptr || (sentence != nullptr && sentence[0] != '\0')) return sentence;
  }
  return c4::api::LastError(comm);
}
C4_WEAK_TWIN(ncclGetLastError);

extern "C" ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) return api->MemAlloc(ptr, size);
  return Report("ncclMemAlloc", nullptr, [&] { return c4::api::Allocate(ptr, size); });
}
C4_WEAK_TWIN(ncclMemAlloc);

extern "C" ncclResult_t pncclMemFree(void* ptr) {
  if (const vendor::Api* const api = vendor::ApiOfProcess()) return api->MemFree(ptr);
  return Report("ncclMemFree", nullptr, [&] { return c4::api::FreeHostMemory(ptr); });
}
C4_WEAK_TWIN(ncclMemFree);

// Programs that were built against other releases look for the inner name; it is in no header.
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal() {
  if (const vendor::Library* const library = vendor::Get()) {
    if (void* const theirs = library->Symbol("ncclResetDebugInitInternal")) {
      reinterpret_cast<void (*)()>(theirs)();
    }
  }
  c4::ForgetKnobs();
  c4::ResetLog();
  (void)c4::CurrentLogLevel();  // reads them on this thread, which the program lends for it
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
extern "C" void c4_host_ncclResetDebugInit() {
  c4::ForgetKnobs();
  c4::ResetLog();
  (void)c4::CurrentLogLevel();  // reads them on this thread, which the program lends for it
}
#pragma GCC diagnostic pop
