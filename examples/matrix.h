// The three products that a layer and its gradients are made of, of matrices whose rows lie one behind the
// other. Each result depends on the numbers alone, not on how the matrices are cut: the same bits every time.
//
// Pure; any thread.
#pragma once

#include <cstddef>

namespace c4::examples {

// out[m][n] += a[m][k] b[k][n]
template <typename Real>
void MultiplyAdd(const Real* a, const Real* b, Real* out, size_t m, size_t k, size_t n) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t l = 0; l < k; ++l) {
      const Real factor = a[i * k + l];
      const Real* row = b + l * n;
      Real* to = out + i * n;
      for (size_t j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  }
}

// out[m][n] += a[k][m]^T b[k][n]
template <typename Real>
void TransposeMultiplyAdd(const Real* a, const Real* b, Real* out, size_t m, size_t k, size_t n) {
  for (size_t l = 0; l < k; ++l) {
    for (size_t i = 0; i < m; ++i) {
      const Real factor = a[l * m + i];
      if (factor == 0) continue;
      const Real* row = b + l * n;
      Real* to = out + i * n;
      for (size_t j = 0; j < n; ++j) to[j] += factor * row[j];
    }
  }
}

// out[m][n] += a[m][k] b[n][k]^T
template <typename Real>
void MultiplyTransposeAdd(const Real* a, const Real* b, Real* out, size_t m, size_t k, size_t n) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const Real* x = a + i * k;
      const Real* y = b + j * k;
      Real sums[8] = {};
      const size_t whole = k - k % 8;
      for (size_t l = 0; l < whole; l += 8) {
        for (size_t lane = 0; lane < 8; ++lane) sums[lane] += x[l + lane] * y[l + lane];
      }
      Real sum = 0;
      for (const Real lane : sums) sum += lane;
      for (size_t l = whole; l < k; ++l) sum += x[l] * y[l];
      out[i * n + j] += sum;
    }
  }
}

}  // namespace c4::examples
