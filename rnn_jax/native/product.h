// Products of a few rows with a matrix that stays in a core's cache.
#ifndef RNN_JAX_NATIVE_PRODUCT_H_
#define RNN_JAX_NATIVE_PRODUCT_H_

#include <algorithm>
#include <vector>

#include "vector.h"

namespace rnn_jax {

#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kSums = 24;  // accumulators of a product, of 32 registers
#else
constexpr int kSums = 12;  // of 16
#endif

// Floats aligned to a cache line.
class Lines {
 public:
  explicit Lines(int64_t size) : memory_(size + 16) {}
  float* data() {
    auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return memory_.data() + (-at & 63) / sizeof(float);
  }

 private:
  std::vector<float> memory_;
};

// A matrix of K rows in panels of V vectors: packed[panel][k][v][lane].
// `at(k, panel, v, lane)` is an element; 0 beyond the matrix.
template <int V, typename At>
void pack(float* packed, int64_t K, int64_t panels, const At& at) {
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) {
        for (int64_t lane = 0; lane < kWidth; ++lane) {
          *packed++ = at(k, panel, v, lane);
        }
      }
    }
  }
}

// R rows of x by P panels. Each sum adds k = 0, 1, ... in order, so that the
// result doesn't depend on R and P.
template <int R, int V, int P, typename Use>
inline void multiply_block(const float* x, int64_t stride, int64_t K,
                           const float* packed, int64_t row, int64_t panel,
                           const Use& use) {
  Vector sum[R][P][V] = {};
  const int64_t size = K * V * kWidth;
  packed += panel * size;
  x += row * stride;
  for (int64_t k = 0; k < K; ++k) {
#pragma GCC unroll 24
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        Vector w = load(packed + p * size + (k * V + v) * kWidth);
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r) sum[r][p][v] += w * x[r * stride + k];
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) use(row + r, panel + p, sum[r][p]);
  }
}

template <int R, int V, typename Use>
inline void multiply_last(const float* x, int64_t stride, int64_t rows,
                          int64_t K, const float* packed, int64_t row,
                          int64_t panel, const Use& use) {
  if constexpr (R > 0) {
    if (rows - row == R) {
      multiply_block<R, V, 1>(x, stride, K, packed, row, panel, use);
    } else {
      multiply_last<R - 1, V>(x, stride, rows, K, packed, row, panel, use);
    }
  }
}

// One row by the panels from `panel` on, at most P of them.
template <int P, int V, typename Use>
inline void multiply_row_last(const float* x, int64_t K, const float* packed,
                              int64_t panel, int64_t panels, const Use& use) {
  if constexpr (P > 0) {
    if (panels - panel == P) {
      multiply_block<1, V, P>(x, 0, K, packed, 0, panel, use);
    } else {
      multiply_row_last<P - 1, V>(x, K, packed, panel, panels, use);
    }
  }
}

// Calls use(row, panel, V vectors) for each row of x and each panel.
template <int V, typename Use>
void multiply(const float* x, int64_t stride, int64_t rows, int64_t K,
              const float* packed, int64_t panels, const Use& use) {
  constexpr int R = kSums / V;
  int64_t panel = 0;
  if (rows == 1) {  // several panels: one sum alone would wait for its latency
    for (; panel + R <= panels; panel += R) {
      multiply_block<1, V, R>(x, stride, K, packed, 0, panel, use);
    }
    multiply_row_last<R - 1, V>(x, K, packed, panel, panels, use);
    return;
  }
  for (; panel < panels; ++panel) {
    int64_t row = 0;
    for (; row + R <= rows; row += R) {
      multiply_block<R, V, 1>(x, stride, K, packed, row, panel, use);
    }
    multiply_last<R - 1, V>(x, stride, rows, K, packed, row, panel, use);
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_PRODUCT_H_
