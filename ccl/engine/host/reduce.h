// Reductions of host memory. Pure; any thread.
#pragma once

#include <cstddef>

namespace c4::host {

// out[i] = a[i] + b[i]. `out` may be `a` or `b`, no other overlap.
void SumFloat(float* out, const float* a, const float* b, size_t count);

}  // namespace c4::host
