// Passes over time of the gated linear recurrence, from any source of q, k, v
// and a. A source has
//
//   Format       float or BFloat16, of y and its gradient
//   floats(T, M) floats of memory that it needs for T steps and M columns
//   read(...)    the steps [begin, end) of a unit, as floats
//   read_for_gradients(...)  the same, if gradients of them will follow
//   add_to_output(...)  adds to a step's y what doesn't come from the state
//   add_columns(...)  receives the gradients of v of a unit's steps
//   add_keys(...)     receives those of q, k and a, of all columns
//
// Segments of steps come from the last to the first, and the gradients of one
// may overwrite its inputs. add_keys gets the memory of read_for_gradients or,
// where several blocks of columns add to its gradients, that of read_keys.
#ifndef RNN_JAX_NATIVE_GLA_PASSES_H_
#define RNN_JAX_NATIVE_GLA_PASSES_H_

#include <algorithm>
#include <type_traits>
#include <vector>

#include "gla_steps.h"

namespace rnn_jax {

constexpr int64_t kPiece = 32;          // steps that forward reads at a time
constexpr int64_t kPartials = 1 << 20;  // floats of sums over blocks

// Rows of a few steps, `*_apart` floats apart; those of v have M columns, padded
// with zeros.
struct Steps {
  const float *q, *k, *a, *v;
  int64_t qk_apart, a_apart, v_apart;
};

// Gradients of q, k and a of some steps: 3 padded rows per step.
struct KeyGradients {
  float* rows;
  int64_t padded;

  KeyGradients(float* rows, int64_t K)
      : rows(rows), padded(rounded_up(K, kWidth)) {}
  int64_t apart() const { return 3 * padded; }
  float* q(int64_t i) const { return rows + i * apart(); }
  float* k(int64_t i) const { return q(i) + padded; }
  float* a(int64_t i) const { return q(i) + 2 * padded; }
};

// The state is float or BFloat16; a BFloat16 is rounded after the last step.
template <int N, bool kBefore, typename Source, typename State>
void forward_unit(const Unit& unit, const Source& source, const State* before,
                  State* state, typename Source::Format* y, float* kept) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, size = K * shape.P;
  int64_t piece = std::min(kPiece, shape.L);
  float* S = scratch(K * M + M + source.floats(piece, M));
  float* out = S + K * M;
  float* memory = out + M;
  before += unit.sequence() * size;
  state += unit.sequence() * size;
  const bool stays = in_place(unit, M, kept);
  if (!stays) load_block(before, unit, M, S);
  for (int64_t begin = 0; begin < shape.L; begin += piece) {
    int64_t end = std::min(shape.L, begin + piece);
    Steps steps = source.read(unit, begin, end, M, memory);
    for (int64_t t = begin; t < end; ++t) {
      if (kept && t % shape.segment == 0) {
        int64_t number =
            unit.sequence() * shape.segments() + t / shape.segment;
        store_block(S, unit, M, kept + number * size);
      }
      int64_t i = t - begin;
      auto step = [&](auto S, auto next) {
        advance<N, kBefore>(K, steps.q + i * steps.qk_apart,
                            steps.k + i * steps.qk_apart,
                            steps.a + i * steps.a_apart,
                            steps.v + i * steps.v_apart, S, next, out);
      };
      if (stays) {
        step(Rows<const State>{before + unit.first, shape.P},
             Rows<State>{state + unit.first, shape.P});
      } else {
        step(Rows<const float>{S, M}, Rows<float>{S, M});
      }
      source.add_to_output(unit, steps.v + i * steps.v_apart, out);
      write(out, unit.columns, y + unit.at(t, shape.P) + unit.first);
    }
  }
  if (!stays) store_block(S, unit, M, state);
}

// A range of segments, and where sums over P are stored: in `partials` if
// several blocks of columns add to them, else not at all.
struct SegmentRange {
  int64_t first, last;
  float* partials;

  float* of_step(int64_t t, const GlaShape& shape) const {
    int64_t apart = 3 * rounded_up(shape.K, kWidth);
    return partials + apart * (t - first * shape.segment);
  }
};

// `E`, KxP per row and head, is the gradient of the state after the range; it is
// overwritten with that of the state before it.
template <int N, bool kBefore, typename Source>
void backward_unit(const Unit& unit, const Source& source, const float* kept,
                   const typename Source::Format* d_y, float* states_E,
                   const SegmentRange& range) {
  const GlaShape& shape = unit.shape;
  constexpr int64_t M = N * kWidth;
  int64_t K = shape.K, size = K * shape.P, padded = rounded_up(K, kWidth);
  int64_t T = shape.segment;
  float* S = scratch((T + 1) * K * M + M + T * M +
                     3 * padded * (kWidth + T) + source.floats(T, M));
  float* E = S + T * K * M;
  float* dy_copy = E + K * M;
  float* dv = dy_copy + M;
  float* products = dv + T * M;
  float* own_rows = products + 3 * padded * kWidth;
  float* memory = own_rows + 3 * padded * T;
  std::fill(products, products + 3 * padded * kWidth, 0.0f);
  load_block(states_E + unit.sequence() * size, unit, M, E);
  for (int64_t n = range.last; n-- > range.first;) {
    int64_t begin = n * T, end = std::min(shape.L, begin + T);
    int64_t number = unit.sequence() * shape.segments() + n;
    Steps steps = source.read_for_gradients(unit, begin, end, M, memory);
    load_block(kept + number * size, unit, M, S);
    for (int64_t i = 0; i + 1 < end - begin; ++i) {
      update<N>(K, steps.k + i * steps.qk_apart, steps.a + i * steps.a_apart,
                steps.v + i * steps.v_apart, S + i * K * M,
                S + (i + 1) * K * M);
    }
    KeyGradients rows(
        range.partials ? range.of_step(begin, shape) : own_rows, K);
    for (int64_t i = end - begin; i-- > 0;) {
      const float* k = steps.k + i * steps.qk_apart;
      const float* a = steps.a + i * steps.a_apart;
      const float* v = steps.v + i * steps.v_apart;
      const float* dy = floats(d_y + unit.at(begin + i, shape.P) + unit.first,
                               unit.columns, M, dy_copy);
      retreat<N, kBefore>(K, steps.q + i * steps.qk_apart, k, a, v, dy,
                          S + i * K * M, E, dv + i * M, products);
      for (int64_t j = 0; j < 3 * padded; j += kWidth) {
        store(rows.q(i) + j, sums(products + j * kWidth));
      }
      if (!kBefore) add_own_write(K, dot<N>(v, dy), a, k, rows.q(i));
    }
    source.add_columns(unit, begin, end, dv, M, memory);
    if (!range.partials) source.add_keys(unit, begin, end, rows, memory);
  }
  store_block(E, unit, M, states_E + unit.sequence() * size);
}

// Adds up the partial sums of the blocks of columns, always in their order.
template <typename Source>
void add_blocks(const Pool& pool, const GlaShape& shape, const Blocks& blocks,
                const Source& source, const SegmentRange& range, int64_t size) {
  parallel_for(pool, shape.B * shape.H, [&](int64_t sequence) {
    Unit unit(shape, blocks, sequence * blocks.count);
    SegmentRange own = range;
    own.partials += sequence * blocks.count * size;
    for (int64_t n = 1; n < blocks.count; ++n) {
      const float* other = own.partials + n * size;
      for (int64_t i = 0; i < size; ++i) own.partials[i] += other[i];
    }
    float* memory = scratch(source.floats(shape.segment, 0));
    for (int64_t n = own.last; n-- > own.first;) {
      int64_t begin = n * shape.segment;
      int64_t end = std::min(shape.L, begin + shape.segment);
      source.read_keys(unit, begin, end, memory);
      KeyGradients rows(own.of_step(begin, shape), shape.K);
      source.add_keys(unit, begin, end, rows, memory);
    }
  });
}

template <bool kBefore, typename Source, typename State>
void run_forward(const Pool& pool, const GlaShape& shape, const Source& source,
                 const State* before, State* state,
                 typename Source::Format* y, float* kept) {
  Blocks blocks(shape);
  parallel_for(pool, shape.B * shape.H * blocks.count, [&](int64_t number) {
    Unit unit(shape, blocks, number);
    with_vectors(unit.columns, [&](auto N) {
      forward_unit<N, kBefore>(unit, source, before, state, y, kept);
    });
  });
}

// `E` is the gradient of the last state; it is overwritten with the first's.
template <bool kBefore, typename Source>
void run_backward(const Pool& pool, const GlaShape& shape,
                  const Source& source, const float* kept,
                  const typename Source::Format* d_y, float* E) {
  Blocks blocks(shape);
  int64_t units = shape.B * shape.H * blocks.count;
  int64_t segments = shape.segments(), together = segments, size = 0;
  std::vector<float> partials;
  if (blocks.count > 1) {
    int64_t of_segment = 3 * rounded_up(shape.K, kWidth) * shape.segment;
    together = std::clamp<int64_t>(kPartials / (units * of_segment), 1,
                                   segments);
    size = of_segment * together;
    partials.resize(units * size);
  }
  for (int64_t last = segments; last > 0; last -= together) {
    int64_t first = std::max<int64_t>(0, last - together);
    parallel_for(pool, units, [&](int64_t number) {
      Unit unit(shape, blocks, number);
      float* own = size ? partials.data() + number * size : nullptr;
      SegmentRange range{first, last, own};
      with_vectors(unit.columns, [&](auto N) {
        backward_unit<N, kBefore>(unit, source, kept, d_y, E, range);
      });
    });
    if (size) {
      SegmentRange range{first, last, partials.data()};
      add_blocks(pool, shape, blocks, source, range, size);
    }
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_GLA_PASSES_H_
