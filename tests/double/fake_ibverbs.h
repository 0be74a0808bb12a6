// What tests ask the double of libibverbs for, beside its own calls. Found by dlsym in the library that is
// loaded already. FAKE_IB_REFUSES_LABELS in the environment: no flow label but 0 is taken. FAKE_IB_SYSFS: the
// device's folder.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct FakeGpuMemory {
  void* address;  // what programs of the GPU's owner see; the processor may not touch it
  void* seen;     // the same memory as the GPU sees it
  int dma_buf;
};

FakeGpuMemory fake_ib_gpu_memory(size_t bytes);
void fake_ib_free_gpu_memory(FakeGpuMemory memory, size_t bytes);
// Reads of such memory, which are all that flush it.
uint64_t fake_ib_flushes();
}
