// One step of the gated linear recurrence, forward and backward, for a block of
// columns; gla_passes.h runs it over time. The equations are in gla.h.
#ifndef RNN_JAX_NATIVE_GLA_STEPS_H_
#define RNN_JAX_NATIVE_GLA_STEPS_H_

#include <algorithm>
#include <type_traits>
#include <vector>

#include "bfloat16.h"
#include "gla.h"
#include "scratch.h"
#include "vector.h"

namespace rnn_jax {

constexpr int kMostVectors = 8;   // in a block: as many as registers hold
constexpr int64_t kUnits = 8;     // at least, where a single row has fewer

// Blocks of whole vectors of P's columns. They don't depend on the number of
// threads, so sums over blocks don't either.
struct Blocks {
  int64_t count, vectors;  // vectors of the widest

  Blocks(const GlaShape& shape) {
    int64_t all = rounded_up(shape.P, kWidth) / kWidth;
    int64_t rows = shape.B * shape.H;
    int64_t least = (all + kMostVectors - 1) / kMostVectors;
    int64_t wanted = (kUnits + rows - 1) / rows;
    count = std::min(all, std::max(least, wanted));
    vectors = (all + count - 1) / count;
    count = (all + vectors - 1) / vectors;
  }
};

// One row and head, and a block of columns.
struct Unit {
  const GlaShape& shape;
  int64_t row, head, block, first, columns;

  Unit(const GlaShape& shape, const Blocks& blocks, int64_t number)
      : shape(shape) {
    int64_t sequence = number / blocks.count;
    row = sequence / shape.H;
    head = sequence % shape.H;
    block = number % blocks.count;
    first = block * blocks.vectors * kWidth;
    columns = std::min(blocks.vectors * kWidth, shape.P - first);
  }

  int64_t sequence() const { return row * shape.H + head; }
  // Offset of a step's row of n numbers in an array BxLxHxn.
  int64_t at(int64_t t, int64_t n) const {
    return ((row * shape.L + t) * shape.H + head) * n;
  }
};

// n numbers as floats, followed by zeros up to `padded`.
template <typename T>
void copy_padded(const T* __restrict x, int64_t n, int64_t padded,
                 float* __restrict copy) {
  for (int64_t i = 0; i < n; ++i) copy[i] = to_float(x[i]);
  for (int64_t i = n; i < padded; ++i) copy[i] = 0;
}

// The same, or the array itself if it has that layout.
template <typename T>
const float* floats(const T* x, int64_t n, int64_t padded, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    if (n == padded) return x;
  }
  copy_padded(x, n, padded, copy);
  return copy;
}

template <typename T>
void write(const float* __restrict x, int64_t n, T* __restrict to) {
  for (int64_t i = 0; i < n; ++i) assign(to[i], x[i]);
}

// A block of a state KxP to KxM floats, M columns of whole vectors, and back.
template <typename State>
void load_block(const State* state, const Unit& unit, int64_t M,
                float* block) {
  for (int64_t k = 0; k < unit.shape.K; ++k) {
    copy_padded(state + k * unit.shape.P + unit.first, unit.columns, M,
                block + k * M);
  }
}

template <typename State>
void store_block(const float* block, const Unit& unit, int64_t M,
                 State* state) {
  for (int64_t k = 0; k < unit.shape.K; ++k) {
    write(block + k * M, unit.columns, state + k * unit.shape.P + unit.first);
  }
}

// A state's rows, of N vectors.
template <typename State>
struct Rows {
  State* first;
  int64_t apart;

  State* operator[](int64_t i) const { return first + i * apart; }
};

// Whether a single step reads and writes a block where the state is: M is its
// columns. Otherwise it is copied first.
inline bool in_place(const Unit& unit, int64_t M, const float* kept) {
  return unit.shape.L == 1 && unit.columns == M && !kept;
}

// y = S^T q and S <- diag(a) S + k v^T, in that order if kBefore. The new S may
// be the old one. y is of sums in float, whatever the format of S.
template <int N, bool kBefore, typename State>
void advance(int64_t K, const float* q, const float* k, const float* a,
             const float* v, Rows<const State> S, Rows<State> next, float* y) {
  Vector sum[N] = {};
  for (int64_t i = 0; i < K; ++i) {
    Vector q_i = broadcast(q[i]), k_i = broadcast(k[i]), a_i = broadcast(a[i]);
    for (int j = 0; j < N; ++j) {
      Vector s = load(S[i] + j * kWidth);
      if (kBefore) sum[j] += q_i * s;
      s = a_i * s + k_i * load(v + j * kWidth);
      if (!kBefore) sum[j] += q_i * s;
      store(next[i] + j * kWidth, s);
    }
  }
  for (int j = 0; j < N; ++j) store(y + j * kWidth, sum[j]);
}

// next = diag(a) S + k v^T.
template <int N>
void update(int64_t K, const float* k, const float* a, const float* v,
            const float* S, float* next) {
  for (int64_t i = 0; i < K; ++i, S += N * kWidth, next += N * kWidth) {
    Vector k_i = broadcast(k[i]), a_i = broadcast(a[i]);
    for (int j = 0; j < N; ++j) {
      store(next + j * kWidth,
            a_i * load(S + j * kWidth) + k_i * load(v + j * kWidth));
    }
  }
}

// One step back, see gla.h. Updates E, writes dv, and for each row of S writes
// the vectors whose elements sum to S dy, E v and E * S to `products`, 3 x K.
template <int N, bool kBefore>
void retreat(int64_t K, const float* q, const float* k, const float* a,
             const float* v, const float* dy, const float* S, float* E,
             float* dv, float* products) {
  Vector sum[N] = {};
  float *of_q = products, *of_k = products + rounded_up(K, kWidth) * kWidth,
        *of_a = of_k + rounded_up(K, kWidth) * kWidth;
  for (int64_t i = 0; i < K; ++i, S += N * kWidth, E += N * kWidth) {
    Vector q_i = broadcast(q[i]), k_i = broadcast(k[i]), a_i = broadcast(a[i]);
    Vector dq = {}, dk = {}, da = {};
    for (int j = 0; j < N; ++j) {
      Vector s = load(S + j * kWidth), e = load(E + j * kWidth);
      Vector dy_j = load(dy + j * kWidth);
      if (!kBefore) e += q_i * dy_j;
      dq += s * dy_j;
      dk += e * load(v + j * kWidth);
      da += e * s;
      sum[j] += k_i * e;
      e *= a_i;
      if (kBefore) e += q_i * dy_j;
      store(E + j * kWidth, e);
    }
    store(of_q + i * kWidth, dq);
    store(of_k + i * kWidth, dk);
    store(of_a + i * kWidth, da);
  }
  for (int j = 0; j < N; ++j) store(dv + j * kWidth, sum[j]);
}

template <int N>
float dot(const float* x, const float* y) {
  float total = 0;
  Vector sum = {};
  for (int j = 0; j < N; ++j) {
    sum += load(x + j * kWidth) * load(y + j * kWidth);
  }
  for (int i = 0; i < kWidth; ++i) total += sum[i];
  return total;
}

// Turns the gradient of q through S_{t-1} into that through S_t.
inline void add_own_write(int64_t K, float v_dy, const float* __restrict a,
                   const float* __restrict k, float* __restrict dq) {
  for (int64_t i = 0; i < K; ++i) dq[i] = a[i] * dq[i] + k[i] * v_dy;
}

// Calls run(std::integral_constant<int, N>) with the least N of 1 to 4, 6 and 8
// that holds a block's columns: fewer instances to compile than all eight.
template <int N = 1, typename Run>
void with_vectors(int64_t columns, const Run& run) {
  if constexpr (N == kMostVectors) {
    run(std::integral_constant<int, N>());
  } else {
    if (columns <= N * kWidth) {
      run(std::integral_constant<int, N>());
    } else {
      with_vectors<(N < 4 ? N + 1 : N + 2)>(columns, run);
    }
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_GLA_STEPS_H_
