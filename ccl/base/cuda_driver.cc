#include "ccl/base/cuda_driver.h"

#include <dlfcn.h>
#include <type_traits>

namespace c4 {
namespace {

constexpr char kFile[] = "libcuda.so.1";

}  // namespace

const char* CudaDriver::NameOf(CudaStatus status) const {
  const char* name = nullptr;
  return error_name != nullptr && error_name(status, &name) == 0 && name != nullptr ? name
                                                                                    : "an unknown error";
}

Result CudaRefused(const CudaDriver& driver, const char* call, CudaStatus status) {
  return Fail(ncclUnhandledCudaError, "%s: %s (%d)", call, driver.NameOf(status), status);
}

Result FindCudaDriver(CudaDriver* driver) {
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return Fail(ncclSystemError, "%s is not loaded in this process", kFile);
  const char* missing = nullptr;
  const auto find = [&](auto* function, const char* symbol) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(handle, symbol));
    if (*function == nullptr) missing = symbol;
  };
  // The names that programs are linked against; without a suffix is the interface of CUDA 3.
  find(&driver->device_get, "cuDeviceGet");
  find(&driver->retain_context, "cuDevicePrimaryCtxRetain");
  find(&driver->push_context, "cuCtxPushCurrent_v2");
  find(&driver->pop_context, "cuCtxPopCurrent_v2");
  find(&driver->load_module, "cuModuleLoadData");
  find(&driver->get_function, "cuModuleGetFunction");
  find(&driver->register_host, "cuMemHostRegister_v2");
  find(&driver->device_pointer, "cuMemHostGetDevicePointer_v2");
  find(&driver->create_stream, "cuStreamCreate");
  find(&driver->query_stream, "cuStreamQuery");
  find(&driver->destroy_stream, "cuStreamDestroy_v2");
  find(&driver->is_capturing, "cuStreamIsCapturing");
  find(&driver->exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(&driver->launch_kernel, "cuLaunchKernel");
  find(&driver->pointer_attributes, "cuPointerGetAttributes");
  find(&driver->allocate_host, "cuMemHostAlloc");
  find(&driver->free_host, "cuMemFreeHost");
  find(&driver->copy_to_host, "cuMemcpyDtoH_v2");
  find(&driver->copy_to_device, "cuMemcpyHtoD_v2");
  find(&driver->error_name, "cuGetErrorName");
  if (missing == nullptr) return Ok();
  return Fail(ncclSystemError, "%s has no %s: its driver is too old", kFile, missing);
}

}  // namespace c4
