// Doubles of what a tester asks of a GPU, as shared libraries with their names: the driver (FAKE_DRIVER),
// cuBLAS (FAKE_CUBLAS), the management library (FAKE_NVML). Matrices lie in host memory; products are
// computed here, of the rows that a tester compares. What a real driver would refuse (a call without a
// context, an address that is nobody's, a kernel of another name, a grid that leaves elements out) it
// refuses, too.
//
// Settings come by the environment: FAKE_GPU_COUNT, FAKE_GPU_FREE_BYTES (of a matrix at most), FAKE_GPU_PID
// (who computes on the last GPU), FAKE_GPU_ERRS (one product is wrong).
//
// What it cannot show: how fast anything is, and that the real libraries take these calls.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

int64_t Setting(const char* name, int64_t otherwise) {
  const char* const value = getenv(name);
  return value == nullptr ? otherwise : atoll(value);
}

constexpr size_t kRows = 2;

template <typename T>
void Multiply(const void* a, const void* b, void* c, size_t order) {
  static int products = 0;
  const auto* left = static_cast<const T*>(a);
  const auto* right = static_cast<const T*>(b);
  auto* out = static_cast<T*>(c);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t column = 0; column < order; ++column) {
      T sum = 0;
      for (size_t k = 0; k < order; ++k) sum += left[row * order + k] * right[k * order + column];
      out[row * order + column] = sum;
    }
  }
  if (++products == Setting("FAKE_GPU_ERRS", -1)) reinterpret_cast<char*>(c)[0] ^= 1;
}

}  // namespace

#ifdef FAKE_DRIVER
namespace {
bool initialised = false;
bool current = false;
std::map<uint64_t, size_t>& Memory() {
  static auto* const memory = new std::map<uint64_t, size_t>;
  return *memory;
}
bool Holds(uint64_t address, size_t bytes) {
  const auto found = Memory().find(address);
  return found != Memory().end() && bytes <= found->second;
}
enum {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialised = 3,
  kInvalidContext = 201,
  kInvalidPtx = 218,
  kNotFound = 500
};
}  // namespace

FAKE_EXPORT int cuInit(unsigned) {
  initialised = true;
  return 0;
}
FAKE_EXPORT int cuDeviceGetCount(int* count) {
  if (!initialised) return kNotInitialised;
  *count = static_cast<int>(Setting("FAKE_GPU_COUNT", 2));
  return 0;
}
FAKE_EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < Setting("FAKE_GPU_COUNT", 2) ? 0 : kInvalidValue;
}
FAKE_EXPORT int cuDeviceGetByPCIBusId(int* device, const char* bus_id) {
  *device = bus_id[0] - '0';
  return strcmp(bus_id + 1, ":bus") == 0 ? 0 : kInvalidValue;
}
FAKE_EXPORT int cuDeviceGetName(char* name, int bytes, int device) {
  strncpy(name, ("Double " + std::to_string(device)).c_str(), static_cast<size_t>(bytes));
  return 0;
}
FAKE_EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  static int primary = 0;
  *context = &primary;
  return initialised ? 0 : kNotInitialised;
}
FAKE_EXPORT int cuCtxSetCurrent(void* context) {
  current = context != nullptr;
  return 0;
}
FAKE_EXPORT int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (!current) return kInvalidContext;
  if (bytes > static_cast<size_t>(Setting("FAKE_GPU_FREE_BYTES", 512 * 512 * 8))) return kOutOfMemory;
  *address = reinterpret_cast<uint64_t>(calloc(1, bytes));
  Memory()[*address] = bytes;
  return 0;
}
FAKE_EXPORT int cuMemFree_v2(uint64_t address) {
  if (Memory().erase(address) == 0) return kInvalidValue;
  free(reinterpret_cast<void*>(address));
  return 0;
}
FAKE_EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  if (!Holds(to, bytes)) return kInvalidValue;
  memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
FAKE_EXPORT int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) {
  if (!Holds(from, bytes)) return kInvalidValue;
  memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
FAKE_EXPORT int cuModuleLoadData(void** module, const void* text) {
  if (!current) return kInvalidContext;
  const std::string ptx = static_cast<const char*>(text);
  if (ptx.rfind(".version ", 0) != 0 || ptx.find(".target sm_") == std::string::npos) return kInvalidPtx;
  *module = new std::string(ptx);
  return 0;
}
FAKE_EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto* const ptx = static_cast<std::string*>(module);
  if (ptx->find(std::string(".visible .entry ") + name + "(") == std::string::npos) return kNotFound;
  *function = new std::string(name);
  return 0;
}
FAKE_EXPORT int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned, void*,
                               void** arguments, void**) {
  const auto& name = *static_cast<std::string*>(function);
  uint64_t values[4];
  for (int i = 0; i < 4; ++i) memcpy(&values[i], arguments[i], sizeof values[i]);
  const size_t order = values[3];
  const bool doubles = name == "c4_gemm_fp64";
  const size_t bytes = order * order * (doubles ? 8 : 4);
  if (!Holds(values[0], bytes) || !Holds(values[1], bytes) || !Holds(values[2], bytes)) return kInvalidValue;
  if (size_t{grid_x} * block_x != order || size_t{grid_y} * block_y != order || grid_z * block_z != 1)
    return kInvalidValue;
  const auto* const a = reinterpret_cast<const void*>(values[0]);
  const auto* const b = reinterpret_cast<const void*>(values[1]);
  if (doubles) {
    Multiply<double>(a, b, reinterpret_cast<void*>(values[2]), order);
  } else {
    Multiply<float>(a, b, reinterpret_cast<void*>(values[2]), order);
  }
  return 0;
}
FAKE_EXPORT int cuCtxSynchronize() {
  return current ? 0 : kInvalidContext;
}
#endif

#ifdef FAKE_CUBLAS
FAKE_EXPORT int cublasCreate_v2(void** handle) {
  static int one = 0;
  *handle = &one;
  return 0;
}
FAKE_EXPORT int cublasGemmEx(void* handle, int, int, int m, int n, int k, const void* alpha, const void* a,
                             int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                             void* c, int c_type, int ldc, int compute_type, int algorithm) {
  const bool doubles = a_type == 1;
  const double one = doubles ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double zero = doubles ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  const bool known = (a_type == 1 && compute_type == 70) ||
                     (a_type == 0 && (compute_type == 68 || compute_type == 77)) ||
                     ((a_type == 2 || a_type == 14) && compute_type == 68);
  if (handle == nullptr || !known || a_type != b_type || a_type != c_type || m != n || n != k || lda != m ||
      ldb != m || ldc != m || one != 1 || zero != 0 || algorithm != -1) {
    return 7;  // invalid value
  }
  const auto order = static_cast<size_t>(m);
  if (doubles) {
    Multiply<double>(a, b, c, order);
  } else if (a_type == 0) {
    Multiply<float>(a, b, c, order);
  } else {
    Multiply<uint16_t>(a, b, c, order);
  }
  return 0;
}
#endif

#ifdef FAKE_NVML
namespace {
struct Process {
  unsigned pid;
  unsigned long long bytes;
  unsigned instance;
  unsigned compute_instance;
};
struct Pci {
  char legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};
}  // namespace
FAKE_EXPORT int nvmlInit_v2() {
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Setting("FAKE_GPU_COUNT", 2));
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<uintptr_t>(index) + 1);
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const auto index = reinterpret_cast<uintptr_t>(device);
  *count = 0;
  if (index != static_cast<uintptr_t>(Setting("FAKE_GPU_COUNT", 2))) return 0;
  processes[0] = {4711, 0, 0, 0};
  processes[1] = {static_cast<unsigned>(Setting("FAKE_GPU_PID", 0)), 0, 0, 0};
  *count = 2;
  return 0;
}
FAKE_EXPORT int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  memset(pci, 0, sizeof *pci);
  strcpy(pci->bus_id, (std::to_string(reinterpret_cast<uintptr_t>(device) - 1) + ":bus").c_str());
  return 0;
}
#endif
