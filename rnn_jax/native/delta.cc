#include "delta.h"

#include <algorithm>

#include "delta_steps.h"

namespace rnn_jax {
namespace {

constexpr int64_t kPiece = 32;  // steps that forward prepares at a time

Blocks blocks_of(const GlaShape& shape) {
  Blocks blocks(shape);
  int64_t all = rounded_up(shape.P, kWidth) / kWidth;
  blocks.count = (all + kMostOfDelta - 1) / kMostOfDelta;
  blocks.vectors = (all + blocks.count - 1) / blocks.count;
  return blocks;
}

// Calls run(std::integral_constant<int, N>) with N of 1, 2, 4 or 8.
template <int N = 1, typename Run>
void with_block(int64_t columns, const Run& run) {
  if constexpr (N == kMostOfDelta) {
    run(std::integral_constant<int, N>());
  } else {
    if (columns <= N * kWidth) {
      run(std::integral_constant<int, N>());
    } else {
      with_block<2 * N>(columns, run);
    }
  }
}

// The vectors of K of the steps [begin, end) of a unit: those that aren't
// arrays are computed into `memory`, floats(steps, K) of it.
template <bool kGeneral>
class Keys {
 public:
  static int64_t floats(int64_t steps, int64_t K) { return 2 * steps * K + K; }

  Keys(const Unit& unit, const DeltaInputs& in, int64_t begin, int64_t end,
       float* memory)
      : unit_(unit), in_(in), begin_(begin), a_(memory) {
    const GlaShape& shape = unit.shape;
    int64_t K = shape.K, steps = end - begin;
    reads_ = a_ + steps * K;
    zeros_ = reads_ + steps * K;
    std::fill(zeros_, zeros_ + K, 0.0f);
    for (int64_t i = 0; i < steps; ++i) {
      const float* a = in.a + unit.at(begin + i, shape.decays());
      const float* k = in.k + unit.at(begin + i, K);
      if (shape.by_head) std::fill(a_ + i * K, a_ + (i + 1) * K, *a);
      if (kGeneral) continue;
      int64_t apart = shape.by_head ? 0 : 1;
      for (int64_t n = 0; n < K; ++n) reads_[i * K + n] = a[n * apart] * k[n];
    }
  }

  DeltaStep step(int64_t i) const {
    int64_t K = unit_.shape.K, at = unit_.at(begin_ + i, K);
    const float* a = unit_.shape.by_head ? a_ + i * K : in_.a + at;
    const float* write = kGeneral ? in_.write + at : nullptr;
    return {in_.q + at, in_.k + at, a, read(i), write};
  }
  const float* read(int64_t i) const {
    int64_t K = unit_.shape.K;
    return kGeneral ? in_.read + unit_.at(begin_ + i, K) : reads_ + i * K;
  }
  // By which a step writes what it read.
  const float* by(int64_t i) const {
    DeltaStep step = this->step(i);
    return kGeneral ? step.write : step.k;
  }
  const float* zeros() const { return zeros_; }

 private:
  const Unit& unit_;
  const DeltaInputs& in_;
  int64_t begin_;
  float *a_, *reads_, *zeros_;
};

float beta_of(const Unit& unit, const DeltaInputs& in, int64_t t) {
  return in.beta[unit.at(t, 1)];
}

// The rows of a block of a BxLxHxP array, padded with zeros.
void copy_rows(const float* from, const Unit& unit, int64_t begin, int64_t end,
               int64_t M, float* to) {
  for (int64_t t = begin; t < end; ++t, to += M) {
    copy_padded(from + unit.at(t, unit.shape.P) + unit.first, unit.columns, M,
                to);
  }
}

template <int N, bool kGeneral, typename State>
void forward_unit(const Unit& unit, const DeltaInputs& in, const State* before,
                  State* state, float* y, float* kept) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, size = K * shape.P;
  int64_t piece = std::min(kPiece, shape.L);
  float* S = scratch(K * M + (piece + 3) * M +
                     Keys<kGeneral>::floats(piece, K));
  float* values = S + K * M;
  float* r = values + piece * M;
  float* x = r + M;
  float* out = x + M;
  float* memory = out + M;
  before += unit.sequence() * size;
  state += unit.sequence() * size;
  const bool stays = in_place(unit, M, kept);
  if (!stays) load_block(before, unit, M, S);
  // Calls run(the state's rows before a step, and after it).
  auto with_rows = [&](const auto& run) {
    if (stays) {
      run(Rows<const State>{before + unit.first, shape.P},
          Rows<State>{state + unit.first, shape.P});
    } else {
      run(Rows<const float>{S, M}, Rows<float>{S, M});
    }
  };
  for (int64_t begin = 0; begin < shape.L; begin += piece) {
    int64_t end = std::min(shape.L, begin + piece);
    Keys<kGeneral> keys(unit, in, begin, end, memory);
    copy_rows(in.v, unit, begin, end, M, values);
    with_rows([&](auto S, auto) { read_state<N>(K, keys.read(0), S, r); });
    for (int64_t t = begin; t < end; ++t) {
      if (kept && t % shape.segment == 0) {
        int64_t number =
            unit.sequence() * shape.segments() + t / shape.segment;
        store_block(S, unit, M, kept + number * size);
      }
      int64_t i = t - begin;
      const float* v = values + i * M;
      float beta = kGeneral ? 0 : beta_of(unit, in, t);
      for (int64_t p = 0; p < M; ++p) {
        x[p] = kGeneral ? r[p] : beta * (v[p] - r[p]);
      }
      const float* next = t + 1 < end ? keys.read(i + 1) : keys.zeros();
      with_rows([&](auto S, auto to) {
        advance_delta<N, kGeneral, true>(K, keys.step(i), next, v, x, S, to,
                                         out, r);
      });
      write(out, unit.columns, y + unit.at(t, shape.P) + unit.first);
    }
  }
  if (!stays) store_block(S, unit, M, state);
}

// Memory of the backward pass of a unit, for blocks of M columns.
template <bool kGeneral>
struct Memory {
  static constexpr int64_t kRows = kGeneral ? 5 : 3;  // of key gradients

  float *S, *E, *values, *errors, *d_y, *vectors, *products, *rows, *d_beta,
      *keys;

  static int64_t padded(int64_t K) { return kRows * rounded_up(K, kWidth); }

  Memory(int64_t K, int64_t T, int64_t M) {
    int64_t sizes[] = {T * K * M,        K * M, T * M,     T * M, T * M,
                       7 * M,            padded(K) * kWidth,
                       padded(K) * T,    rounded_up(T, kWidth),
                       Keys<kGeneral>::floats(T, K)};
    float** parts[] = {&S,       &E,        &values, &errors, &d_y,
                       &vectors, &products, &rows,   &d_beta, &keys};
    int64_t total = 0;
    for (int64_t size : sizes) total += size;
    float* memory = scratch(total);
    for (int n = 0; n < 10; ++n) {
      *parts[n] = memory;
      memory += sizes[n];
    }
    // The last rows of these are never written.
    std::fill(products, products + padded(K) * kWidth, 0.0f);
  }
};

// The segment [begin, end) of a block of columns: adds its key gradients to
// `memory.rows`, and overwrites the gradient of its last state with the first's.
template <int N, bool kGeneral>
void segment_backward(const Unit& unit, const DeltaInputs& in,
                      const Keys<kGeneral>& keys, int64_t begin, int64_t end,
                      const float* kept, const float* all_d_y, float* d_v,
                      float* d_state, const Memory<kGeneral>& memory) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, steps = end - begin, padded = memory.padded(K);
  float *S = memory.S, *E = memory.E, *errors = memory.errors;
  float* r = memory.vectors;
  float* x = r + M;
  float* d = x + M;
  float* d_next = d + M;
  float* d_value = d_next + M;
  float* zeros = d_value + M;
  std::fill(zeros, zeros + M, 0.0f);
  load_block(kept, unit, M, S);
  load_block(d_state, unit, M, E);
  copy_rows(in.v, unit, begin, end, M, memory.values);
  copy_rows(all_d_y, unit, begin, end, M, memory.d_y);
  read_state<N>(K, keys.read(0), Rows<const float>{S, M}, r);
  for (int64_t i = 0; i < steps; ++i) {
    const float* v = memory.values + i * M;
    float beta = kGeneral ? 0 : beta_of(unit, in, begin + i);
    for (int64_t p = 0; p < M; ++p) {
      errors[i * M + p] = kGeneral ? r[p] : v[p] - r[p];
      x[p] = kGeneral ? r[p] : beta * errors[i * M + p];
    }
    if (i + 1 == steps) break;
    advance_delta<N, kGeneral, false>(K, keys.step(i), keys.read(i + 1), v, x,
                                      Rows<const float>{S + i * K * M, M},
                                      Rows<float>{S + (i + 1) * K * M, M},
                                      nullptr, r);
  }
  add_reading<N>(K, keys.step(steps - 1).q, memory.d_y + (steps - 1) * M,
                 keys.by(steps - 1), E, d);
  for (int64_t i = steps; i-- > 0; std::swap(d, d_next)) {
    DeltaStep step = keys.step(i);
    const float* v = memory.values + i * M;
    const float* e = errors + i * M;
    const float* d_y = memory.d_y + i * M;
    Retreat at{v, e, d, d_y, keys.zeros(), zeros, keys.zeros(), d_value, d_next};
    if (i > 0) {
      at.earlier_q = keys.step(i - 1).q;
      at.earlier_dy = d_y - M;
      at.earlier_by = keys.by(i - 1);
    }
    if constexpr (kGeneral) {
      retreat_general<N>(K, step, at, S + i * K * M, E, memory.products);
    } else {
      float beta = beta_of(unit, in, begin + i);
      memory.d_beta[i] += dot<N>(d, e);
      for (int64_t p = 0; p < M; ++p) {
        d_value[p] = beta * d[p];
        x[p] = beta * e[p];
      }
      at.wrote = x;
      at.d_read = d_value;
      retreat_delta<N>(K, step, at, S + i * K * M, E, memory.products);
    }
    float* rows = memory.rows + i * padded;
    float v_dy = dot<N>(kGeneral ? v : x, d_y);
    float u_dy = kGeneral ? dot<N>(e, d_y) : 0;
    float* of_q = memory.products;
    for (int64_t j = 0; j < padded; j += kWidth) {
      Vector total = sums(of_q + j * kWidth);
      if (j < K) {  // of S_{t-1} dy: the rest of S_t is what the step wrote
        float ends[4][kWidth] = {};
        int64_t n = std::min<int64_t>(kWidth, K - j);
        std::copy(step.a + j, step.a + j + n, ends[0]);
        std::copy(step.k + j, step.k + j + n, ends[1]);
        if (kGeneral) std::copy(step.write + j, step.write + j + n, ends[2]);
        total = load(ends[0]) * total + v_dy * load(ends[1]);
        if (kGeneral) total += u_dy * load(ends[2]);
      }
      store(rows + j, load(rows + j) + total);
    }
    write(d_value, unit.columns,
          d_v + unit.at(begin + i, shape.P) + unit.first);
  }
  store_block(E, unit, M, d_state);
}

template <bool kGeneral>
void write_keys(const Unit& unit, int64_t begin, int64_t end,
                const Memory<kGeneral>& memory, const DeltaGradients& out) {
  const GlaShape& shape = unit.shape;
  int64_t K = shape.K, apart = rounded_up(K, kWidth);
  for (int64_t t = begin; t < end; ++t) {
    const float* rows = memory.rows + (t - begin) * memory.padded(K);
    write(rows, K, out.q + unit.at(t, K));
    write(rows + apart, K, out.k + unit.at(t, K));
    const float* d_a = rows + 2 * apart;
    if (shape.by_head) {
      float total = 0;
      for (int64_t i = 0; i < K; ++i) total += d_a[i];
      out.a[unit.at(t, 1)] = total;
    } else {
      write(d_a, K, out.a + unit.at(t, K));
    }
    if (kGeneral) {
      write(rows + 3 * apart, K, out.read + unit.at(t, K));
      write(rows + 4 * apart, K, out.write + unit.at(t, K));
    } else {
      out.beta[unit.at(t, 1)] = memory.d_beta[t - begin];
    }
  }
}

template <bool kGeneral>
void backward_unit(const GlaShape& shape, const Blocks& blocks,
                   int64_t sequence, const DeltaInputs& in, const float* kept,
                   const float* d_y, const DeltaGradients& out) {
  int64_t K = shape.K, T = shape.segment, size = K * shape.P;
  Memory<kGeneral> memory(K, T, kMostOfDelta * kWidth);
  for (int64_t n = shape.segments(); n-- > 0;) {
    int64_t begin = n * T, end = std::min(shape.L, begin + T);
    const float* first = kept + (sequence * shape.segments() + n) * size;
    Unit all(shape, blocks, sequence * blocks.count);
    Keys<kGeneral> keys(all, in, begin, end, memory.keys);
    std::fill(memory.rows, memory.rows + memory.padded(K) * T, 0.0f);
    std::fill(memory.d_beta, memory.d_beta + T, 0.0f);
    for (int64_t block = 0; block < blocks.count; ++block) {
      Unit unit(shape, blocks, sequence * blocks.count + block);
      with_block(unit.columns, [&](auto N) {
        segment_backward<N, kGeneral>(unit, in, keys, begin, end, first, d_y,
                                      out.v, out.state + sequence * size,
                                      memory);
      });
    }
    write_keys(all, begin, end, memory, out);
  }
}

}  // namespace

template <bool kGeneral, typename State>
void delta_forward(const Pool& pool, const GlaShape& shape,
                   const DeltaInputs& in, const State* before, State* state,
                   float* y, float* kept) {
  Blocks blocks = blocks_of(shape);
  parallel_for(pool, shape.B * shape.H * blocks.count, [&](int64_t number) {
    Unit unit(shape, blocks, number);
    with_block(unit.columns, [&](auto N) {
      forward_unit<N, kGeneral>(unit, in, before, state, y, kept);
    });
  });
}

template <bool kGeneral>
void delta_backward(const Pool& pool, const GlaShape& shape,
                    const DeltaInputs& in, const float* kept,
                    const float* d_state, const float* d_y,
                    const DeltaGradients& out) {
  Blocks blocks = blocks_of(shape);
  int64_t sequences = shape.B * shape.H;
  std::copy(d_state, d_state + sequences * shape.K * shape.P, out.state);
  parallel_for(pool, sequences, [&](int64_t sequence) {
    backward_unit<kGeneral>(shape, blocks, sequence, in, kept, d_y, out);
  });
}

template void delta_forward<false>(const Pool&, const GlaShape&,
                                   const DeltaInputs&, const float*, float*,
                                   float*, float*);
template void delta_forward<false>(const Pool&, const GlaShape&,
                                   const DeltaInputs&, const BFloat16*,
                                   BFloat16*, float*, float*);
template void delta_forward<true>(const Pool&, const GlaShape&,
                                  const DeltaInputs&, const float*, float*,
                                  float*, float*);
template void delta_forward<true>(const Pool&, const GlaShape&,
                                  const DeltaInputs&, const BFloat16*,
                                  BFloat16*, float*, float*);
template void delta_backward<false>(const Pool&, const GlaShape&,
                                    const DeltaInputs&, const float*,
                                    const float*, const float*,
                                    const DeltaGradients&);
template void delta_backward<true>(const Pool&, const GlaShape&,
                                   const DeltaInputs&, const float*,
                                   const float*, const float*,
                                   const DeltaGradients&);

}  // namespace rnn_jax
