#include "gla.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "bfloat16.h"
#include "vector.h"

namespace rnn_jax {
namespace {

constexpr int kMostVectors = 8;   // of a block: what registers hold
constexpr int64_t kUnits = 8;     // wanted, where a single row has fewer
constexpr int64_t kPartials = 1 << 20;  // floats of sums over blocks

int64_t rounded_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// Memory that a thread keeps for its next unit.
float* scratch(int64_t floats) {
  static thread_local std::vector<Vector> memory;
  int64_t vectors = rounded_up(floats, kWidth) / kWidth;
  if (static_cast<int64_t>(memory.size()) < vectors) memory.resize(vectors);
  return reinterpret_cast<float*>(memory.data());
}

// How P's columns are cut into blocks of whole vectors, the same for any number
// of threads, so that sums over blocks are too.
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

// n numbers as floats, followed by zeros up to `padded`: the array itself if it
// is already so, else a copy.
template <typename T>
const float* floats(const T* __restrict x, int64_t n, int64_t padded,
                    float* __restrict copy) {
  if constexpr (std::is_same_v<T, float>) {
    if (n == padded) return x;
  }
  for (int64_t i = 0; i < n; ++i) copy[i] = to_float(x[i]);
  for (int64_t i = n; i < padded; ++i) copy[i] = 0;
  return copy;
}

template <typename T>
void write(const float* __restrict x, int64_t n, T* __restrict to) {
  for (int64_t i = 0; i < n; ++i) assign(to[i], x[i]);
}

// A block of a state KxP to KxM, M columns of whole vectors, and back.
void load_block(const float* state, const Unit& unit, int64_t M, float* block) {
  for (int64_t k = 0; k < unit.shape.K; ++k) {
    const float* from = state + k * unit.shape.P + unit.first;
    float* to = block + k * M;
    std::copy(from, from + unit.columns, to);
    std::fill(to + unit.columns, to + M, 0.0f);
  }
}

void store_block(const float* block, const Unit& unit, int64_t M,
                 float* state) {
  for (int64_t k = 0; k < unit.shape.K; ++k) {
    const float* from = block + k * M;
    std::copy(from, from + unit.columns, state + k * unit.shape.P + unit.first);
  }
}

// What a step reads, as floats.
template <typename T>
struct Step {
  const float *q, *k, *a, *v;

  Step(const GlaInputs<T>& in, const Unit& unit, int64_t t, int64_t M,
       float* copies) {
    const GlaShape& shape = unit.shape;
    int64_t K = shape.K, at = unit.at(t, K);
    q = floats(in.q + at, K, K, copies);
    k = floats(in.k + at, K, K, copies + K);
    a = in.a + unit.at(t, shape.decays());
    if (shape.by_head) {
      std::fill(copies + 2 * K, copies + 3 * K, *a);
      a = copies + 2 * K;
    }
    v = floats(in.v + unit.at(t, shape.P) + unit.first, unit.columns, M,
               copies + 3 * K);
  }

  static int64_t copies(int64_t K, int64_t M) { return 3 * K + M; }
};

// y = S^T q and S <- diag(a) S + k v^T, in the order that is asked for.
template <int N, bool kBefore>
void advance(int64_t K, const float* q, const float* k, const float* a,
             const float* v, float* S, float* y) {
  Vector sum[N] = {};
  for (int64_t i = 0; i < K; ++i, S += N * kWidth) {
    Vector q_i = broadcast(q[i]), k_i = broadcast(k[i]), a_i = broadcast(a[i]);
    for (int j = 0; j < N; ++j) {
      Vector s = load(S + j * kWidth);
      if (kBefore) sum[j] += q_i * s;
      s = a_i * s + k_i * load(v + j * kWidth);
      if (!kBefore) sum[j] += q_i * s;
      store(S + j * kWidth, s);
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

// One step back, see gla.h: E is changed; dv is written; of each row of S the
// vectors whose elements sum to S dy, E v and E * S, in `products`, 3 x K.
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
  for (int j = 0; j < N; ++j) sum += load(x + j * kWidth) * load(y + j * kWidth);
  for (int i = 0; i < kWidth; ++i) total += sum[i];
  return total;
}

// From the gradient of q that S_{t-1} gives to that of S_t.
void add_own_write(int64_t K, float v_dy, const float* __restrict a,
                   const float* __restrict k, float* __restrict dq) {
  for (int64_t i = 0; i < K; ++i) dq[i] = a[i] * dq[i] + k[i] * v_dy;
}

template <int N, bool kBefore, typename T>
void forward_unit(const Unit& unit, const GlaInputs<T>& in, float* state, T* y,
                  float* kept) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, size = K * shape.P;
  float* S = scratch(K * M + M + Step<T>::copies(K, M));
  float* out = S + K * M;
  float* copies = out + M;
  load_block(in.state + unit.sequence() * size, unit, M, S);
  for (int64_t t = 0; t < shape.L; ++t) {
    if (kept && t % shape.stretch == 0) {
      int64_t number = unit.sequence() * shape.stretches() + t / shape.stretch;
      store_block(S, unit, M, kept + number * size);
    }
    Step<T> step(in, unit, t, M, copies);
    advance<N, kBefore>(K, step.q, step.k, step.a, step.v, S, out);
    write(out, unit.columns, y + unit.at(t, shape.P) + unit.first);
  }
  store_block(S, unit, M, state + unit.sequence() * size);
}

// The steps of some stretches, and where sums over P go: to the gradients, or,
// where several blocks of columns add to them, to `partials`, 3xTxK a unit.
struct Segment {
  int64_t first, last;  // stretches
  float* partials;
};

template <typename T>
void write_sums(const Unit& unit, int64_t t, const float* dq, const float* dk,
                const float* da, const GlaGradients<T>& out) {
  const GlaShape& shape = unit.shape;
  int64_t K = shape.K, at = unit.at(t, K);
  write(dq, K, out.q + at);
  write(dk, K, out.k + at);
  if (!shape.by_head) {
    write(da, K, out.a + at);
    return;
  }
  float total = 0;
  for (int64_t i = 0; i < K; ++i) total += da[i];
  out.a[unit.at(t, 1)] = total;
}

// `E`, KxP a row and head, is the gradient of the state behind the segment, and
// becomes that of the state before it.
template <int N, bool kBefore, typename T>
void backward_unit(const Unit& unit, const GlaInputs<T>& in, const float* kept,
                   const T* d_y, const GlaGradients<T>& out, float* states_E,
                   const Segment& segment) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, size = K * shape.P, padded = rounded_up(K, kWidth);
  float* S = scratch((shape.stretch + 1) * K * M + 2 * M +
                     3 * padded * (kWidth + 1) + Step<T>::copies(K, M));
  float* E = S + shape.stretch * K * M;
  float* dv = E + K * M;
  float* dy_copy = dv + M;
  float* products = dy_copy + M;
  float* summed = products + 3 * padded * kWidth;
  float* copies = summed + 3 * padded;
  float *dq = summed, *dk = dq + padded, *da = dk + padded;
  std::fill(products, products + 3 * padded * kWidth, 0.0f);
  load_block(states_E + unit.sequence() * size, unit, M, E);
  for (int64_t n = segment.last; n-- > segment.first;) {
    int64_t begin = n * shape.stretch;
    int64_t end = std::min(shape.L, begin + shape.stretch);
    int64_t number = unit.sequence() * shape.stretches() + n;
    load_block(kept + number * size, unit, M, S);
    for (int64_t t = begin; t + 1 < end; ++t) {
      Step<T> step(in, unit, t, M, copies);
      float* at = S + (t - begin) * K * M;
      update<N>(K, step.k, step.a, step.v, at, at + K * M);
    }
    for (int64_t t = end; t-- > begin;) {
      Step<T> step(in, unit, t, M, copies);
      const float* dy = floats(d_y + unit.at(t, shape.P) + unit.first,
                               unit.columns, M, dy_copy);
      retreat<N, kBefore>(K, step.q, step.k, step.a, step.v, dy,
                          S + (t - begin) * K * M, E, dv, products);
      write(dv, unit.columns, out.v + unit.at(t, shape.P) + unit.first);
      for (int64_t i = 0; i < 3 * padded; i += kWidth) {
        store(summed + i, sums(products + i * kWidth));
      }
      if (!kBefore) {
        add_own_write(K, dot<N>(step.v, dy), step.a, step.k, dq);
      }
      if (!segment.partials) {
        write_sums(unit, t, dq, dk, da, out);
        continue;
      }
      float* to = segment.partials + 3 * K * (t - segment.first * shape.stretch);
      for (const float* x : {dq, dk, da}) to = std::copy(x, x + K, to);
    }
  }
  store_block(E, unit, M, states_E + unit.sequence() * size);
}

// Calls run(std::integral_constant<int, N>) with the least N of 1 to 4, 6 and 8
// that holds a block's columns: fewer programs to compile than all.
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

// Adds up what the blocks of columns contributed, always in their order.
template <typename T>
void add_blocks(const Pool& pool, const GlaShape& shape, const Blocks& blocks,
                const GlaGradients<T>& out, const Segment& segment,
                int64_t size) {
  parallel_for(pool, shape.B * shape.H, [&](int64_t sequence) {
    Unit unit(shape, blocks, sequence * blocks.count);
    float* first = segment.partials + unit.sequence() * blocks.count * size;
    for (int64_t n = 1; n < blocks.count; ++n) {
      const float* other = first + n * size;
      for (int64_t i = 0; i < size; ++i) first[i] += other[i];
    }
    int64_t K = shape.K, t = segment.first * shape.stretch;
    int64_t end = std::min(shape.L, segment.last * shape.stretch);
    for (; t < end; ++t, first += 3 * K) {
      write_sums(unit, t, first, first + K, first + 2 * K, out);
    }
  });
}

}  // namespace

template <typename T>
void gla_forward(const Pool& pool, const GlaShape& shape,
                 const GlaInputs<T>& in, float* state, T* y, float* kept) {
  Blocks blocks(shape);
  parallel_for(pool, shape.B * shape.H * blocks.count, [&](int64_t number) {
    Unit unit(shape, blocks, number);
    with_vectors(unit.columns, [&](auto N) {
      if (shape.read_before) {
        forward_unit<N, true>(unit, in, state, y, kept);
      } else {
        forward_unit<N, false>(unit, in, state, y, kept);
      }
    });
  });
}

template <typename T>
void gla_backward(const Pool& pool, const GlaShape& shape,
                  const GlaInputs<T>& in, const float* kept,
                  const float* d_state, const T* d_y,
                  const GlaGradients<T>& out) {
  Blocks blocks(shape);
  int64_t units = shape.B * shape.H * blocks.count;
  std::copy(d_state, d_state + shape.B * shape.H * shape.K * shape.P,
            out.state);
  int64_t stretches = shape.stretches(), together = stretches, size = 0;
  std::vector<float> partials;
  if (blocks.count > 1) {
    int64_t of_stretch = units * 3 * shape.K * shape.stretch;
    together = std::min(stretches, std::max<int64_t>(1, kPartials / of_stretch));
    size = 3 * shape.K * shape.stretch * together;
    partials.resize(units * size);
  }
  for (int64_t last = stretches; last > 0; last -= together) {
    int64_t first = std::max<int64_t>(0, last - together);
    parallel_for(pool, units, [&](int64_t number) {
      Unit unit(shape, blocks, number);
      float* own = size ? partials.data() + number * size : nullptr;
      Segment segment{first, last, own};
      with_vectors(unit.columns, [&](auto N) {
        if (shape.read_before) {
          backward_unit<N, true>(unit, in, kept, d_y, out, out.state, segment);
        } else {
          backward_unit<N, false>(unit, in, kept, d_y, out, out.state, segment);
        }
      });
    });
    if (size) {
      Segment segment{first, last, partials.data()};
      add_blocks(pool, shape, blocks, out, segment, size);
    }
  }
}

template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<float>&, float*, float*, float*);
template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<BFloat16>&, float*, BFloat16*,
                          float*);
template void gla_backward(const Pool&, const GlaShape&,
                           const GlaInputs<float>&, const float*, const float*,
                           const float*, const GlaGradients<float>&);
template void gla_backward(const Pool&, const GlaShape&,
                           const GlaInputs<BFloat16>&, const float*,
                           const float*, const BFloat16*,
                           const GlaGradients<BFloat16>&);

}  // namespace rnn_jax
