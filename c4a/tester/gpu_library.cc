#include "c4a/tester/gpu_library.h"

#include <array>
#include <cstring>
#include <dlfcn.h>

namespace c4::tester {
namespace {

void* Open(std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    if (void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return nullptr;
}

template <typename Function>
bool Load(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

// As NVIDIA's headers lay them out.
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct NvmlPci {
  char legacy_bus_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};
constexpr unsigned kMostProcesses = 256;

struct Nvml {
  int (*init)() = nullptr;
  int (*count)(unsigned* count) = nullptr;
  int (*handle)(unsigned index, void** device) = nullptr;
  int (*processes)(void* device, unsigned* count, NvmlProcess* processes) = nullptr;
  int (*pci)(void* device, NvmlPci* pci) = nullptr;
};

}  // namespace

std::optional<Cuda> FindCuda() {
  void* const handle = Open({"libcuda.so.1", "libcuda.so"});
  Cuda cuda;
  if (handle == nullptr || !Load(handle, "cuInit", &cuda.init) ||
      !Load(handle, "cuDeviceGetCount", &cuda.device_count) ||
      !Load(handle, "cuDeviceGet", &cuda.device_get) ||
      !Load(handle, "cuDeviceGetByPCIBusId", &cuda.device_of_bus) ||
      !Load(handle, "cuDeviceGetName", &cuda.device_name) ||
      !Load(handle, "cuDevicePrimaryCtxRetain", &cuda.retain_context) ||
      !Load(handle, "cuCtxSetCurrent", &cuda.set_context) || !Load(handle, "cuMemAlloc_v2", &cuda.allocate) ||
      !Load(handle, "cuMemFree_v2", &cuda.free) || !Load(handle, "cuMemcpyHtoD_v2", &cuda.to_device) ||
      !Load(handle, "cuMemcpyDtoH_v2", &cuda.to_host) ||
      !Load(handle, "cuModuleLoadData", &cuda.load_module) ||
      !Load(handle, "cuModuleGetFunction", &cuda.get_function) ||
      !Load(handle, "cuLaunchKernel", &cuda.launch) || !Load(handle, "cuCtxSynchronize", &cuda.synchronize)) {
    return std::nullopt;
  }
  return cuda;
}

std::optional<Cublas> FindCublas() {
  void* const handle = Open({"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"});
  Cublas cublas;
  if (handle == nullptr || !Load(handle, "cublasCreate_v2", &cublas.create) ||
      !Load(handle, "cublasGemmEx", &cublas.multiply)) {
    return std::nullopt;
  }
  return cublas;
}

bool BusIdOf(unsigned pid, char (&bus_id)[32]) {
  void* const library = Open({"libnvidia-ml.so.1", "libnvidia-ml.so"});
  Nvml nvml;
  if (library == nullptr || !Load(library, "nvmlInit_v2", &nvml.init) ||
      !Load(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
      !Load(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) ||
      !Load(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes) ||
      !Load(library, "nvmlDeviceGetPciInfo_v3", &nvml.pci) || nvml.init() != 0) {
    return false;
  }
  unsigned gpus = 0;
  if (nvml.count(&gpus) != 0) return false;
  for (unsigned i = 0; i < gpus; ++i) {
    void* device = nullptr;
    std::array<NvmlProcess, kMostProcesses> processes{};
    unsigned count = kMostProcesses;
    if (nvml.handle(i, &device) != 0 || nvml.processes(device, &count, processes.data()) != 0) continue;
    for (unsigned k = 0; k < count && k < kMostProcesses; ++k) {
      NvmlPci pci{};
      if (processes[k].pid != pid || nvml.pci(device, &pci) != 0) continue;
      memcpy(bus_id, pci.bus_id, sizeof bus_id);
      bus_id[sizeof bus_id - 1] = '\0';
      return true;
    }
  }
  return false;
}

}  // namespace c4::tester
