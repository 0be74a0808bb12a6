// The functions of NVIDIA's driver, cuBLAS and management library that a tester needs, in declarations of our
// own, opened at run time. A table is whole or not there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace c4::tester {

struct Cuda {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_of_bus)(int* device, const char* bus_id) = nullptr;
  int (*device_name)(char* name, int bytes, int device) = nullptr;
  int (*retain_context)(void** context, int device) = nullptr;
  int (*set_context)(void* context) = nullptr;
  int (*allocate)(uint64_t* address, size_t bytes) = nullptr;
  int (*free)(uint64_t address) = nullptr;
  int (*to_device)(uint64_t to, const void* from, size_t bytes) = nullptr;
  int (*to_host)(void* to, uint64_t from, size_t bytes) = nullptr;
  int (*load_module)(void** module, const void* text) = nullptr;
  int (*get_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** arguments,
                void** extra) = nullptr;
  int (*synchronize)() = nullptr;
};

struct Cublas {
  int (*create)(void** handle) = nullptr;
  int (*multiply)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                  const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                  void* c, int c_type, int ldc, int compute_type, int algorithm) = nullptr;
};

std::optional<Cuda> FindCuda();
std::optional<Cublas> FindCublas();

// The bus id of the GPU on which the process computes, as the management library says; false: on none.
bool BusIdOf(unsigned pid, char (&bus_id)[32]);

}  // namespace c4::tester
