#include "gla.h"

#include <algorithm>

#include "gla_passes.h"

namespace rnn_jax {
namespace {

// A source of gla_passes.h: separate arrays for q, k, v and a, and for their
// gradients.
template <typename T>
struct Arrays {
  using Format = T;
  const GlaShape& shape;
  const GlaInputs<T>& in;
  const GlaGradients<T>& out;

  int64_t floats(int64_t steps, int64_t M) const {
    return steps * (3 * shape.K + M);
  }

  Steps read(const Unit& unit, int64_t begin, int64_t end, int64_t M,
             float* memory) const {
    int64_t K = shape.K, steps = end - begin;
    float* copies[] = {memory, memory + steps * K, memory + 2 * steps * K,
                       memory + 3 * steps * K};
    Steps result;
    int64_t between = shape.H * K;
    const T* q = in.q + unit.at(begin, K);
    const T* k = in.k + unit.at(begin, K);
    result.q = rows(q, between, K, steps, K, copies[0], &result.qk_apart);
    result.k = rows(k, between, K, steps, K, copies[1], &result.qk_apart);
    const T* v = in.v + unit.at(begin, shape.P) + unit.first;
    result.v = rows(v, shape.H * shape.P, unit.columns, steps, M, copies[3],
                   &result.v_apart);
    result.a = in.a + unit.at(begin, shape.decays());
    result.a_apart = shape.H * shape.decays();
    if (!shape.by_head) return result;
    for (int64_t i = 0; i < steps; ++i) {
      float* to = copies[2] + i * K;
      std::fill(to, to + K, result.a[i * result.a_apart]);
    }
    result.a = copies[2];
    result.a_apart = K;
    return result;
  }

  Steps read_for_gradients(const Unit& unit, int64_t begin, int64_t end,
                           int64_t M, float* memory) const {
    return read(unit, begin, end, M, memory);
  }

  void read_keys(const Unit&, int64_t, int64_t, float*) const {}

  void add_to_output(const Unit&, const float*, float*) const {}

  void add_columns(const Unit& unit, int64_t begin, int64_t end,
                   const float* dv, int64_t M, float*) const {
    for (int64_t t = begin; t < end; ++t, dv += M) {
      write(dv, unit.columns, out.v + unit.at(t, shape.P) + unit.first);
    }
  }

  void add_keys(const Unit& unit, int64_t begin, int64_t end,
                const KeyGradients& d, float*) const {
    int64_t K = shape.K;
    for (int64_t t = begin; t < end; ++t) {
      int64_t i = t - begin;
      write(d.q(i), K, out.q + unit.at(t, K));
      write(d.k(i), K, out.k + unit.at(t, K));
      if (!shape.by_head) {
        write(d.a(i), K, out.a + unit.at(t, K));
        continue;
      }
      float total = 0;
      for (int64_t j = 0; j < K; ++j) total += d.a(i)[j];
      out.a[unit.at(t, 1)] = total;
    }
  }

 private:
  // n floats of each step, `apart` from step to step, padded with zeros to M:
  // the array itself if it has that layout, else a copy.
  static const float* rows(const T* from, int64_t between, int64_t n,
                           int64_t steps, int64_t M, float* copy,
                           int64_t* apart) {
    if constexpr (std::is_same_v<T, float>) {
      if (n == M) {
        *apart = between;
        return from;
      }
    }
    *apart = M;
    for (int64_t i = 0; i < steps; ++i) {
      copy_padded(from + i * between, n, M, copy + i * M);
    }
    return copy;
  }
};

}  // namespace

template <typename T, typename State>
void gla_forward(const Pool& pool, const GlaShape& shape,
                 const GlaInputs<T>& in, const State* before, State* state,
                 T* y, float* kept) {
  GlaGradients<T> none{};
  Arrays<T> source{shape, in, none};
  if (shape.read_before) {
    run_forward<true>(pool, shape, source, before, state, y, kept);
  } else {
    run_forward<false>(pool, shape, source, before, state, y, kept);
  }
}

template <typename T>
void gla_backward(const Pool& pool, const GlaShape& shape,
                  const GlaInputs<T>& in, const float* kept,
                  const float* d_state, const T* d_y,
                  const GlaGradients<T>& out) {
  Arrays<T> source{shape, in, out};
  std::copy(d_state, d_state + shape.B * shape.H * shape.K * shape.P,
            out.state);
  if (shape.read_before) {
    run_backward<true>(pool, shape, source, kept, d_y, out.state);
  } else {
    run_backward<false>(pool, shape, source, kept, d_y, out.state);
  }
}

template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<float>&, const float*, float*,
                          float*, float*);
template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<float>&, const BFloat16*, BFloat16*,
                          float*, float*);
template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<BFloat16>&, const float*, float*,
                          BFloat16*, float*);
template void gla_forward(const Pool&, const GlaShape&,
                          const GlaInputs<BFloat16>&, const BFloat16*,
                          BFloat16*, BFloat16*, float*);
template void gla_backward(const Pool&, const GlaShape&,
                           const GlaInputs<float>&, const float*, const float*,
                           const float*, const GlaGradients<float>&);
template void gla_backward(const Pool&, const GlaShape&,
                           const GlaInputs<BFloat16>&, const float*,
                           const float*, const BFloat16*,
                           const GlaGradients<BFloat16>&);

}  // namespace rnn_jax
