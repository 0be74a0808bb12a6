#include "ccl/engine/host/reduce.h"

namespace c4::host {

// Written so that the compiler makes vector code of it; buffers need only the alignment of a float.
void SumFloat(float* out, const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

}  // namespace c4::host
