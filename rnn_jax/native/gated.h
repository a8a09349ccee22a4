// What recurrences have in common whose gates read h: units of a row, rows
// shared among threads, weights as a product reads them.
#ifndef RNN_JAX_NATIVE_GATED_H_
#define RNN_JAX_NATIVE_GATED_H_

#include <algorithm>

#include "activations.h"
#include "product.h"
#include "xla.h"

namespace rnn_jax {

using Floats = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;

constexpr int64_t kRows = 16;  // of a thread at a time

// kWidth units of one row at one step, at offset j of n that are left.
struct Units {
  int64_t S, j, n;
  Vector get(const float* p, int64_t part = 0) const {
    return load(p + part * S + j, n);
  }
  void put(float* p, int64_t part, Vector x) const {
    store(p + part * S + j, x, n);
  }
  // Asks for parts of a row that a later step reads or writes: between two
  // steps of a row lie those of all others, more than a processor foresees.
  void prefetch(const float* p, int64_t parts) const {
    for (int64_t part = 0; part < parts; ++part) {
      __builtin_prefetch(p + part * S + j, 1);
    }
  }
};

inline Vector through_sigmoid(Vector d, Vector y) { return d * y * (1.0f - y); }
inline Vector through_tanh(Vector d, Vector y) { return d * (1.0f - y * y); }

struct Shape {
  int64_t B, L, S;
  int64_t panels() const { return (S + kWidth - 1) / kWidth; }
  Units units(int64_t panel) const {
    return {S, panel * kWidth, S - panel * kWidth};
  }
};

// Runs body(first row, rows).
template <typename Body>
void each(const Pool& pool, int64_t B, const Body& body) {
  int64_t share = (B + pool.threads - 1) / std::max<int64_t>(pool.threads, 1);
  int64_t rows = std::clamp<int64_t>(share, 1, kRows);
  parallel_for(pool, (B + rows - 1) / rows, [&](int64_t item) {
    body(item * rows, std::min(rows, B - item * rows));
  });
}

// Where documents begin, BxL; without elements where none does.
inline bool starts_at(const ffi::Buffer<ffi::U8>& starts, int64_t at) {
  return starts.element_count() && starts.typed_data()[at];
}

// U of Sx(G S), by which h is multiplied: a panel has a vector of each gate.
template <int G>
void pack_gates(float* packed, const float* weights, int64_t S) {
  pack<G>(packed, S, (S + kWidth - 1) / kWidth,
          [&](int64_t k, int64_t panel, int64_t v, int64_t lane) {
            int64_t j = panel * kWidth + lane;
            return j < S ? weights[(k * G + v) * S + j] : 0.0f;
          });
}

// Its transpose, by which the gradients of G gates are multiplied: a panel has
// V vectors of units.
template <int V>
void pack_transposed(float* packed, const float* weights, int64_t S,
                     int64_t G) {
  pack<V>(packed, G * S, (S + V * kWidth - 1) / (V * kWidth),
          [&](int64_t k, int64_t panel, int64_t v, int64_t lane) {
            int64_t j = (panel * V + v) * kWidth + lane;
            return j < S ? weights[j * G * S + k] : 0.0f;
          });
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_GATED_H_
