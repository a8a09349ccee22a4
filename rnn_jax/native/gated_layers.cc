// Gated recurrences with several products within a step, each of which reads
// what came of the one before, and their gradients; the equations are in
// ops/gated_layers.py. As in gated.cc, rows are independent: each thread takes
// a few of them through all steps.

#include <algorithm>
#include <utility>
#include <vector>

#include "gated.h"

namespace rnn_jax {
namespace {

using Starts = ffi::Buffer<ffi::U8>;

constexpr int kWide = 4;  // vectors of a panel without gates

int64_t wide_panels(const Shape& shape) {
  return (shape.panels() + kWide - 1) / kWide;
}

Shape shape_of(const Floats& like, const Floats& h0) {
  auto dims = like.dimensions();
  return {dims[0], dims[1], h0.dimensions()[1]};
}

inline float* data_of(Floats array) { return array.typed_data(); }
inline float* data_of(Result array) { return array->typed_data(); }

// Where each array begins of those whose number depends on the call.
template <typename Arrays>
ffi::Error read_all(const Arrays& arrays, std::vector<float*>* data) {
  for (size_t n = 0; n < arrays.size(); ++n) {
    auto array = arrays.template get<Floats>(n);
    if (!array.has_value()) return array.error();
    data->push_back(data_of(array.value()));
  }
  return ffi::Error::Success();
}

// Zeros the rows whose document begins at step t.
void reset(const Starts& starts, int64_t first, int64_t rows, int64_t L,
           int64_t t, int64_t S, float* state) {
  for (int64_t row = 0; row < rows; ++row) {
    if (!starts_at(starts, (first + row) * L + t)) continue;
    std::fill_n(state + row * S, S, 0.0f);
  }
}

void copy_step(const float* from, int64_t first, int64_t rows, int64_t L,
               int64_t t, int64_t S, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * S, S, to + ((first + row) * L + t) * S);
  }
}

// h before a step, as it is read.
const float* before_of(const Floats& h0, const Floats& h, const Starts& starts,
                       int64_t row, int64_t L, int64_t t, int64_t S,
                       const float* zeros) {
  if (starts_at(starts, row * L + t)) return zeros;
  if (!t) return h0.typed_data() + row * S;
  return h.typed_data() + (row * L + t - 1) * S;
}

// Adds d W^T to the rows of `to`, where `matrix` is W from pack_transposed.
void add_product(const Shape& shape, const float* d, int64_t width,
                 int64_t rows, const float* matrix, float* to) {
  const int64_t S = shape.S;
  auto use = [&](int64_t row, int64_t panel, const Vector* product) {
    for (int64_t v = 0; v < kWide; ++v) {
      if (panel * kWide + v >= shape.panels()) break;
      Units units = shape.units(panel * kWide + v);
      units.put(to + row * S, 0, units.get(to + row * S) + product[v]);
    }
  };
  multiply<kWide>(d, width, rows, width, matrix, wide_panels(shape), use);
}

// What a product is used in is never inlined, so that the compiler rounds alike
// in each of its uses.

// A layer of a highway. `added` is u, or the layer's bias.
__attribute__((noinline)) void highway(Units units, const Vector* product,
                                       const float* added, const float* before,
                                       float* after, float* gates) {
  Vector c = tanh(units.get(added, 0) + product[0]);
  Vector g = sigmoid(units.get(added, 1) + product[1]);
  units.put(after, 0, g * c + (1.0f - g) * units.get(before));
  if (!gates) return;
  units.put(gates, 0, c);
  units.put(gates, 1, g);
}

ffi::Error rhn_forward_of(ffi::ThreadPool threads, Floats u, Floats kernels,
                          Floats biases, Floats h0, Starts starts, Result h,
                          ffi::RemainingRets kept) {
  const Shape shape = shape_of(u, h0);
  const int64_t L = shape.L, S = shape.S, depth = kernels.dimensions()[0];
  std::vector<float*> gates;
  if (auto error = read_all(kept, &gates); error.failure()) {
    return error;
  }
  const bool keeps = !gates.empty();
  const int64_t size = shape.panels() * S * 2 * kWidth;
  Lines packed(depth * size);
  for (int64_t l = 0; l < depth; ++l) {
    pack_gates<2>(packed.data() + l * size,
                  kernels.typed_data() + l * S * 2 * S, S);
  }
  const float* matrices = packed.data();
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines memory(2 * rows * S);
    float *before = memory.data(), *after = before + rows * S;
    std::copy_n(h0.typed_data() + first * S, rows * S, before);
    for (int64_t t = 0; t < L; ++t) {
      reset(starts, first, rows, L, t, S, before);
      for (int64_t l = 0; l < depth; ++l) {
        auto use = [&](int64_t row, int64_t panel, const Vector* product) {
          int64_t at = (first + row) * L + t;
          Units units = shape.units(panel);
          const float* added = l ? biases.typed_data() + (l - 1) * 2 * S
                                 : u.typed_data() + at * 2 * S;
          float* kept_gates = keeps ? gates[l] + at * 2 * S : nullptr;
          if (t + 1 < L) {
            if (!l) units.prefetch(added + 2 * S, 2);
            if (l && keeps) units.prefetch(kept_gates + 2 * S, 2);
            if (!l) units.prefetch(h->typed_data() + (at + 1) * S, 1);
          }
          highway(units, product, added, before + row * S, after + row * S,
                  kept_gates);
        };
        multiply<2>(before, S, rows, S, matrices + l * size, shape.panels(),
                    use);
        std::swap(before, after);
      }
      copy_step(before, first, rows, L, t, S, h->typed_data());
    }
  });
  return ffi::Error::Success();
}

// The results are the gradients of h0 and of each layer's product, which may be
// where its gates are, and what each layer reads.
ffi::Error rhn_backward_of(ffi::ThreadPool threads, Floats kernels, Floats,
                           Floats h0, Starts starts, Floats h, Floats d_h,
                           ffi::RemainingArgs kept, Result d_h0,
                           ffi::RemainingRets results) {
  const Shape shape = shape_of(h, h0);
  const int64_t L = shape.L, S = shape.S, depth = kernels.dimensions()[0];
  std::vector<float*> gates, arrays;
  if (auto error = read_all(kept, &gates); error.failure()) {
    return error;
  }
  if (auto error = read_all(results, &arrays); error.failure()) {
    return error;
  }
  float* const* d_products = arrays.data();
  float* const* inputs = d_products + depth;
  const int64_t size = wide_panels(shape) * 2 * S * kWide * kWidth;
  Lines packed(depth * size);
  for (int64_t l = 0; l < depth; ++l) {
    pack_transposed<kWide>(packed.data() + l * size,
                           kernels.typed_data() + l * S * 2 * S, S, 2);
  }
  const float* matrices = packed.data();
  const std::vector<float> zeros(S);
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines memory(rows * 3 * S);
    float *carried = memory.data(), *d_local = carried + rows * S;
    for (int64_t t = L; t-- > 0;) {
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = (first + row) * L + t;
        const float* before = before_of(h0, h, starts, first + row, L, t, S,
                                        zeros.data());
        for (int64_t panel = 0; panel < shape.panels(); ++panel) {
          Units units = shape.units(panel);
          if (t) units.prefetch(d_h.typed_data() + (at - 1) * S, 1);
          if (t > 1) units.prefetch(h.typed_data() + (at - 2) * S, 1);
          Vector s = units.get(before);
          for (int64_t l = 0; l < depth; ++l) {
            if (t) units.prefetch(inputs[l] + (at - 1) * S, 1);
            units.put(inputs[l] + at * S, 0, s);
            Vector c = units.get(gates[l] + at * 2 * S, 0);
            Vector g = units.get(gates[l] + at * 2 * S, 1);
            s = g * c + (1.0f - g) * s;
          }
          Vector d = units.get(carried + row * S);
          units.put(carried + row * S, 0,
                    d + units.get(d_h.typed_data() + at * S));
        }
      }
      for (int64_t l = depth; l-- > 0;) {
        for (int64_t row = 0; row < rows; ++row) {
          int64_t at = (first + row) * L + t;
          const float* kept_gates = gates[l] + at * 2 * S;
          for (int64_t panel = 0; panel < shape.panels(); ++panel) {
            Units units = shape.units(panel);
            if (t) units.prefetch(kept_gates - 2 * S, 2);
            Vector c = units.get(kept_gates, 0), g = units.get(kept_gates, 1);
            Vector s = units.get(inputs[l] + at * S);
            Vector d = units.get(carried + row * S);
            Vector d_c = through_tanh(d * g, c);
            Vector d_g = through_sigmoid(d * (c - s), g);
            units.put(carried + row * S, 0, d * (1.0f - g));
            units.put(d_products[l] + at * 2 * S, 0, d_c);
            units.put(d_products[l] + at * 2 * S, 1, d_g);
            units.put(d_local + row * 2 * S, 0, d_c);
            units.put(d_local + row * 2 * S, 1, d_g);
          }
        }
        add_product(shape, d_local, 2 * S, rows, matrices + l * size, carried);
      }
      reset(starts, first, rows, L, t, S, carried);
    }
    std::copy_n(carried, rows * S, d_h0->typed_data() + first * S);
  });
  return ffi::Error::Success();
}

// Of a GRU that resets before the product: r and z from the first one, of which
// r * h enters the second.
__attribute__((noinline)) void gru_gates(Units units, const Vector* product,
                                         const float* u, const float* before,
                                         float* read, float* z_local,
                                         float* gates) {
  Vector r = sigmoid(units.get(u, 0) + product[0]);
  Vector z = sigmoid(units.get(u, 1) + product[1]);
  units.put(read, 0, r * units.get(before));
  units.put(z_local, 0, z);
  if (!gates) return;
  units.put(gates, 0, r);
  units.put(gates, 1, z);
}

__attribute__((noinline)) void gru_candidate(Units units, Vector product,
                                             const float* u, const float* z,
                                             float* h, float* gates) {
  Vector n = tanh(units.get(u, 2) + product);
  Vector kept = units.get(z);
  units.put(h, 0, kept * units.get(h) + (1.0f - kept) * n);
  if (gates) units.put(gates, 2, n);
}

ffi::Error gru_before_forward_of(ffi::ThreadPool threads, Floats u,
                                 Floats kernel, Floats candidate, Floats h0,
                                 Starts starts, Result h,
                                 ffi::RemainingRets kept) {
  const Shape shape = shape_of(u, h0);
  const int64_t L = shape.L, S = shape.S;
  std::vector<float*> gates;
  if (auto error = read_all(kept, &gates); error.failure()) {
    return error;
  }
  const bool keeps = !gates.empty();
  Lines packed_gates(shape.panels() * S * 2 * kWidth);
  pack_gates<2>(packed_gates.data(), kernel.typed_data(), S);
  Lines packed_candidate(wide_panels(shape) * S * kWide * kWidth);
  pack<kWide>(packed_candidate.data(), S, wide_panels(shape),
              [&](int64_t k, int64_t panel, int64_t v, int64_t lane) {
                int64_t j = (panel * kWide + v) * kWidth + lane;
                return j < S ? candidate.typed_data()[k * S + j] : 0.0f;
              });
  const float *of_gates = packed_gates.data();
  const float *of_candidate = packed_candidate.data();
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines memory(3 * rows * S);
    float *state = memory.data(), *read = state + rows * S;
    float* z = read + rows * S;
    std::copy_n(h0.typed_data() + first * S, rows * S, state);
    for (int64_t t = 0; t < L; ++t) {
      reset(starts, first, rows, L, t, S, state);
      auto u_of = [&](int64_t row) {
        return u.typed_data() + ((first + row) * L + t) * 3 * S;
      };
      auto gates_of = [&](int64_t row) {
        return keeps ? gates[0] + ((first + row) * L + t) * 3 * S : nullptr;
      };
      auto use_gates = [&](int64_t row, int64_t panel, const Vector* product) {
        Units units = shape.units(panel);
        if (t + 1 < L) {
          int64_t next = (first + row) * L + t + 1;
          units.prefetch(u.typed_data() + next * 3 * S, 3);
          units.prefetch(h->typed_data() + next * S, 1);
        }
        gru_gates(units, product, u_of(row), state + row * S, read + row * S,
                  z + row * S, gates_of(row));
      };
      multiply<2>(state, S, rows, S, of_gates, shape.panels(), use_gates);
      auto use = [&](int64_t row, int64_t panel, const Vector* product) {
        for (int64_t v = 0; v < kWide; ++v) {
          if (panel * kWide + v >= shape.panels()) break;
          gru_candidate(shape.units(panel * kWide + v), product[v], u_of(row),
                        z + row * S, state + row * S, gates_of(row));
        }
      };
      multiply<kWide>(read, S, rows, S, of_candidate, wide_panels(shape), use);
      copy_step(state, first, rows, L, t, S, h->typed_data());
    }
  });
  return ffi::Error::Success();
}

// What comes to r, the gradient of r * h given.
void gru_read_back(Units units, const float* d_read, const float* before,
                   const float* r_kept, float* carried, float* d_u,
                   float* d_gates) {
  Vector r = units.get(r_kept), d = units.get(d_read);
  units.put(carried, 0, units.get(carried) + d * r);
  Vector d_r = through_sigmoid(d * units.get(before), r);
  units.put(d_u, 0, d_r);
  units.put(d_gates, 0, d_r);
}

// The results are the gradients of h0 and of u, which may be where the gates
// are, h before each step, and r times it.
ffi::Error gru_before_backward_of(ffi::ThreadPool threads, Floats kernel,
                                  Floats candidate, Floats h0, Starts starts,
                                  Floats h, Floats d_h, ffi::RemainingArgs kept,
                                  Result d_h0, ffi::RemainingRets results) {
  const Shape shape = shape_of(h, h0);
  const int64_t L = shape.L, S = shape.S;
  std::vector<float*> gates, arrays;
  if (auto error = read_all(kept, &gates); error.failure()) {
    return error;
  }
  if (auto error = read_all(results, &arrays); error.failure()) {
    return error;
  }
  float *d_u = arrays[0], *inputs = arrays[1], *reads = arrays[2];
  Lines packed_gates(wide_panels(shape) * 2 * S * kWide * kWidth);
  pack_transposed<kWide>(packed_gates.data(), kernel.typed_data(), S, 2);
  Lines packed_candidate(wide_panels(shape) * S * kWide * kWidth);
  pack_transposed<kWide>(packed_candidate.data(), candidate.typed_data(), S, 1);
  const float *of_gates = packed_gates.data();
  const float *of_candidate = packed_candidate.data();
  const std::vector<float> zeros(S);
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines memory(rows * 5 * S);
    float *carried = memory.data(), *d_read = carried + rows * S;
    float *d_n = d_read + rows * S, *d_gates = d_n + rows * S;
    for (int64_t t = L; t-- > 0;) {
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = (first + row) * L + t;
        const float* before = before_of(h0, h, starts, first + row, L, t, S,
                                        zeros.data());
        const float* kept_gates = gates[0] + at * 3 * S;
        for (int64_t panel = 0; panel < shape.panels(); ++panel) {
          Units units = shape.units(panel);
          if (t) {
            units.prefetch(kept_gates - 3 * S, 3);
            units.prefetch(d_h.typed_data() + (at - 1) * S, 1);
            units.prefetch(inputs + (at - 1) * S, 1);
            units.prefetch(reads + (at - 1) * S, 1);
          }
          if (t > 1) units.prefetch(h.typed_data() + (at - 2) * S, 1);
          Vector r = units.get(kept_gates, 0), z = units.get(kept_gates, 1);
          Vector n = units.get(kept_gates, 2), x = units.get(before);
          Vector d = units.get(carried + row * S) +
                     units.get(d_h.typed_data() + at * S);
          Vector d_z = through_sigmoid(d * (x - n), z);
          Vector d_candidate = through_tanh(d * (1.0f - z), n);
          units.put(carried + row * S, 0, d * z);
          units.put(inputs + at * S, 0, x);
          units.put(reads + at * S, 0, r * x);
          units.put(d_u + at * 3 * S, 1, d_z);
          units.put(d_u + at * 3 * S, 2, d_candidate);
          units.put(d_gates + row * 2 * S, 1, d_z);
          units.put(d_n + row * S, 0, d_candidate);
          units.put(d_read + row * S, 0, Vector{});
        }
      }
      add_product(shape, d_n, S, rows, of_candidate, d_read);
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = (first + row) * L + t;
        for (int64_t panel = 0; panel < shape.panels(); ++panel) {
          gru_read_back(shape.units(panel), d_read + row * S, inputs + at * S,
                        gates[0] + at * 3 * S, carried + row * S,
                        d_u + at * 3 * S, d_gates + row * 2 * S);
        }
      }
      add_product(shape, d_gates, 2 * S, rows, of_gates, carried);
      reset(starts, first, rows, L, t, S, carried);
    }
    std::copy_n(carried, rows * S, d_h0->typed_data() + first * S);
  });
  return ffi::Error::Success();
}

auto forward_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Starts>()
      .Ret<Floats>()
      .RemainingRets();
}

auto backward_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Starts>()
      .Arg<Floats>()
      .Arg<Floats>()
      .RemainingArgs()
      .Ret<Floats>()
      .RemainingRets();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(rhn_forward, rhn_forward_of, forward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(rhn_backward, rhn_backward_of,
                              backward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gru_before_forward, gru_before_forward_of,
                              forward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gru_before_backward, gru_before_backward_of,
                              backward_binding());

}  // namespace rnn_jax
