// The sLSTM, step by step, and its gradients; the equations are in
// ops/slstm.py. Rows and heads are independent: each thread runs one head of a
// few rows through all steps.

#include <algorithm>

#include "gated.h"

namespace rnn_jax {
namespace {

using Starts = ffi::Buffer<ffi::U8>;

constexpr int kGates = 4;
constexpr int kWide = 4;  // vectors of a panel without gates
constexpr int64_t kBlock = 16;  // steps whose products with h are added at once

// B rows of L steps; H heads of K units, S in all.
struct Heads {
  int64_t B, L, H, K;
  int64_t S() const { return H * K; }
  int64_t panels() const { return (K + kWidth - 1) / kWidth; }
  int64_t wide_panels() const { return (panels() + kWide - 1) / kWide; }
  // Units of a head among S, and among those of the head.
  Units units(int64_t head, int64_t panel) const {
    return {S(), head * K + panel * kWidth, K - panel * kWidth};
  }
  Units own_units(int64_t panel) const {
    return {K, panel * kWidth, K - panel * kWidth};
  }
};

Heads heads_of(const Floats& like, const Floats& kernel) {
  auto rows = like.dimensions(), weights = kernel.dimensions();
  return {rows[0], rows[1], weights[0], weights[1]};
}

// Runs body(head, first row, rows).
template <typename Body>
void each_head(const Pool& pool, const Heads& heads, const Body& body) {
  int64_t threads = std::max<int64_t>(pool.threads, 1);
  int64_t share = (heads.B * heads.H + threads - 1) / threads;
  int64_t rows = std::clamp<int64_t>(std::min(share, heads.B), 1, kRows);
  int64_t blocks = (heads.B + rows - 1) / rows;
  parallel_for(pool, blocks * heads.H, [&](int64_t item) {
    int64_t first = item / heads.H * rows;
    body(item % heads.H, first, std::min(rows, heads.B - first));
  });
}

// log(1 + y) for y from 0 to 1, to a relative 1e-7: 2 artanh(y / (2 + y)).
Vector log_of_1_and(Vector y) {
  Vector s = y / (2.0f + y), z = s * s;
  Vector p = broadcast(1.0f / 15);
  p = p * z + 1.0f / 13;
  p = p * z + 1.0f / 11;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  return 2.0f * (s + s * z * p);
}

// One row and step: the state, which is overwritten but for h, and what the
// backward pass reads, if `gates` isn't null.
struct Step {
  const float* u;
  float *c, *n, *m, *h;
  float *gates, *c_kept, *n_kept, *slope;
};

// Never inlined, so that the compiler rounds alike wherever it is called.
__attribute__((noinline)) void step(Units units, Units own,
                                    const Vector* product, bool exponential_f,
                                    const Step& at) {
  Vector input = units.get(at.u, 0) + product[0];
  Vector forget = units.get(at.u, 1) + product[1];
  Vector z = tanh(units.get(at.u, 2) + product[2]);
  Vector o = sigmoid(units.get(at.u, 3) + product[3]);
  Vector log_f = forget, slope = broadcast(1.0f);
  if (!exponential_f) {
    Vector size = select(forget < 0.0f, -forget, forget);
    Vector y = exponential(-size);
    log_f = select(forget < 0.0f, forget, Vector{}) - log_of_1_and(y);
    slope = select(forget < 0.0f, slope, y) / (1.0f + y);
  }
  Vector c = own.get(at.c), n = own.get(at.n);
  Integers fresh = n == 0.0f;
  Vector past = log_f + own.get(at.m);
  Vector m = select((past > input) & ~fresh, past, input);
  Vector i = exponential(input - m);
  Vector f = select(fresh, Vector{}, exponential(past - m));
  c = f * c + i * z;
  n = f * n + i;
  own.put(at.c, 0, c);
  own.put(at.n, 0, n);
  own.put(at.m, 0, m);
  own.put(at.h, 0, o * (c / n));
  if (!at.gates) return;
  units.put(at.gates, 0, i);
  units.put(at.gates, 1, f);
  units.put(at.gates, 2, z);
  units.put(at.gates, 3, o);
  units.put(at.c_kept, 0, c);
  units.put(at.n_kept, 0, n);
  units.put(at.slope, 0, slope);
}

ffi::Error forward(ffi::ThreadPool threads, Floats u, Floats kernel, Floats h0,
                   Floats c0, Floats n0, Floats m0, Starts starts,
                   bool exponential_f, Result h, Result c_last, Result n_last,
                   Result m_last, Result gates, Result c_kept, Result n_kept,
                   Result slope) {
  const Heads heads = heads_of(u, kernel);
  const int64_t L = heads.L, S = heads.S(), K = heads.K;
  const int64_t size = heads.panels() * K * kGates * kWidth;
  Lines packed(heads.H * size);
  for (int64_t head = 0; head < heads.H; ++head) {
    pack_gates<kGates>(packed.data() + head * size,
                       kernel.typed_data() + head * K * kGates * K, K);
  }
  const float* matrices = packed.data();
  const bool keeps = gates->element_count();
  const Floats first_of[] = {h0, c0, n0, m0};
  each_head(pool_of(threads), heads, [&](int64_t head, int64_t first,
                                         int64_t rows) {
    Lines memory(5 * rows * K);
    float* parts[5];
    for (int64_t part = 0; part < 5; ++part) {
      parts[part] = memory.data() + part * rows * K;
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t part = 0; part < 4; ++part) {
        std::copy_n(
            first_of[part].typed_data() + (first + row) * S + head * K, K,
            parts[part] + row * K);
      }
    }
    float *before = parts[0], *c = parts[1], *n = parts[2], *m = parts[3];
    float* after = parts[4];
    for (int64_t t = 0; t < L; ++t) {
      for (int64_t row = 0; row < rows; ++row) {
        if (!starts_at(starts, (first + row) * L + t)) continue;
        for (float* part : {before, c, n, m}) {
          std::fill_n(part + row * K, K, 0.0f);
        }
      }
      auto use = [&](int64_t row, int64_t panel, const Vector* product) {
        int64_t at = (first + row) * L + t;
        Units units = heads.units(head, panel);
        const float* read = u.typed_data() + at * kGates * S;
        Step values = {read, c + row * K, n + row * K, m + row * K,
                       after + row * K, nullptr, nullptr, nullptr, nullptr};
        if (keeps) {
          values.gates = gates->typed_data() + at * kGates * S;
          values.c_kept = c_kept->typed_data() + at * S;
          values.n_kept = n_kept->typed_data() + at * S;
          values.slope = slope->typed_data() + at * S;
        }
        if (t + 1 < L) {
          units.prefetch(read + kGates * S, kGates);
          units.prefetch(h->typed_data() + (at + 1) * S, 1);
          if (keeps) {
            units.prefetch(values.c_kept + S, 1);
            units.prefetch(values.n_kept + S, 1);
            units.prefetch(values.slope + S, 1);
          }
        }
        step(units, heads.own_units(panel), product, exponential_f, values);
      };
      multiply<kGates>(before, K, rows, K, matrices + head * size,
                       heads.panels(), use);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(after + row * K, K,
                    h->typed_data() + ((first + row) * L + t) * S + head * K);
      }
      std::swap(before, after);
    }
    for (int64_t row = 0; row < rows; ++row) {
      int64_t to = (first + row) * S + head * K;
      std::copy_n(c + row * K, K, c_last->typed_data() + to);
      std::copy_n(n + row * K, K, n_last->typed_data() + to);
      std::copy_n(m + row * K, K, m_last->typed_data() + to);
    }
  });
  return ffi::Error::Success();
}

// One row and step of the backward pass.
struct Back {
  const float* gates;  // may alias d_u
  const float *slope, *c, *n, *h, *d_h;
  const float *c_before, *n_before;  // as read, or zeros
  float *carried_h, *carried_c, *carried_n, *carried_m;
  float *d_u, *d_product;
};

// `packed` has a vector of each gate.
void back(Units units, Units own, const Back& at, float* packed) {
  Vector i = units.get(at.gates, 0), f = units.get(at.gates, 1);
  Vector z = units.get(at.gates, 2), o = units.get(at.gates, 3);
  Vector slope = units.get(at.slope), scale = 1.0f / units.get(at.n);
  Vector d_h = units.get(at.d_h) + own.get(at.carried_h);
  Vector d_o = through_sigmoid(d_h * (units.get(at.c) * scale), o);
  Vector d_c = own.get(at.carried_c) + d_h * o * scale;
  Vector d_n = own.get(at.carried_n) - d_h * units.get(at.h) * scale;
  Vector d_log_i = (d_c * z + d_n) * i;
  Vector d_log_f =
      (d_c * units.get(at.c_before) + d_n * units.get(at.n_before)) * f;
  own.put(at.carried_h, 0, Vector{});
  own.put(at.carried_c, 0, d_c * f);
  own.put(at.carried_n, 0, d_n * f);
  own.put(at.carried_m, 0, d_log_f);
  int64_t part = 0;
  for (Vector x : {d_log_i, d_log_f * slope, through_tanh(d_c * i, z), d_o}) {
    units.put(at.d_u, part, x);
    own.put(at.d_product, part, x);
    store(packed + part++ * kWidth, x);
  }
}

// What one row's block of steps adds to the gradient of R.
struct Block {
  const Heads& heads;
  float* h;  // K x kBlock, before each step
  float* d;  // panels x kBlock x gates x kWidth, of what R h enters
  int64_t steps = 0;

  static int64_t size(const Heads& heads) {
    return kBlock * (heads.K + heads.panels() * kGates * kWidth);
  }
  Block(const Heads& heads, float* memory)
      : heads(heads), h(memory), d(memory + kBlock * heads.K) {}
  float* gradients(int64_t panel) const {
    return d + (panel * kBlock + steps) * kGates * kWidth;
  }
  void add(const float* h_before, float* d_kernel) {
    for (int64_t k = 0; k < heads.K; ++k) h[k * kBlock + steps] = h_before[k];
    if (++steps == kBlock) flush(d_kernel);
  }
  void flush(float* d_kernel) {
    for (int64_t k = 0; k < heads.K; ++k) {
      std::fill_n(h + k * kBlock + steps, kBlock - steps, 0.0f);
    }
    for (int64_t panel = 0; panel < heads.panels(); ++panel) {
      std::fill_n(gradients(panel), (kBlock - steps) * kGates * kWidth, 0.0f);
    }
    auto use = [&](int64_t k, int64_t panel, const Vector* sums) {
      Units own = heads.own_units(panel);
      float* to = d_kernel + k * kGates * heads.K;
      for (int64_t part = 0; part < kGates; ++part) {
        own.put(to, part, own.get(to, part) + sums[part]);
      }
    };
    multiply<kGates>(h, kBlock, heads.K, kBlock, d, heads.panels(), use);
    steps = 0;
  }
};

ffi::Error backward(ffi::ThreadPool threads, Floats kernel, Floats c0,
                    Floats n0, Starts starts, Floats h, Floats h0,
                    Floats gates, Floats c, Floats n, Floats slope,
                    Floats d_h, Floats d_c_last, Floats d_n_last, Result d_h0,
                    Result d_c0, Result d_n0, Result d_m0, Result d_u,
                    Result d_kernels) {
  const Heads heads = heads_of(h, kernel);
  const int64_t L = heads.L, S = heads.S(), K = heads.K;
  const int64_t weights = K * kGates * K;  // of a head
  const bool sums = d_kernels->element_count();
  const int64_t size = heads.wide_panels() * kGates * K * kWide * kWidth;
  Lines packed(heads.H * size);
  for (int64_t head = 0; head < heads.H; ++head) {
    pack_transposed<kWide>(packed.data() + head * size,
                           kernel.typed_data() + head * weights, K, kGates);
  }
  const float* matrices = packed.data();
  const std::vector<float> zeros(S);
  each_head(pool_of(threads), heads, [&](int64_t head, int64_t first,
                                         int64_t rows) {
    Lines memory((4 + kGates) * rows * K);
    float *carried_h = memory.data(), *carried_c = carried_h + rows * K;
    float *carried_n = carried_c + rows * K, *carried_m = carried_n + rows * K;
    float* d_products = carried_m + rows * K;
    Lines block_memory(rows * Block::size(heads));
    std::vector<Block> blocks;
    for (int64_t row = 0; row < rows; ++row) {
      int64_t from = (first + row) * S + head * K;
      std::copy_n(d_c_last.typed_data() + from, K, carried_c + row * K);
      std::copy_n(d_n_last.typed_data() + from, K, carried_n + row * K);
      blocks.emplace_back(heads,
                          block_memory.data() + row * Block::size(heads));
    }
    auto d_kernel_of = [&](int64_t row) {
      return d_kernels->typed_data() +
             ((first + row) * heads.H + head) * weights;
    };
    for (int64_t row = 0; sums && row < rows; ++row) {
      std::fill_n(d_kernel_of(row), weights, 0.0f);
    }
    for (int64_t t = L; t-- > 0;) {
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = (first + row) * L + t;
        bool begins = starts_at(starts, at);
        auto earlier = [&](const Floats& kept, const Floats& initial) {
          return begins ? zeros.data()
                 : t    ? kept.typed_data() + (at - 1) * S
                        : initial.typed_data() + (first + row) * S;
        };
        Back values = {gates.typed_data() + at * kGates * S,
                       slope.typed_data() + at * S,
                       c.typed_data() + at * S,
                       n.typed_data() + at * S,
                       h.typed_data() + at * S,
                       d_h.typed_data() + at * S,
                       earlier(c, c0),
                       earlier(n, n0),
                       carried_h + row * K,
                       carried_c + row * K,
                       carried_n + row * K,
                       carried_m + row * K,
                       d_u->typed_data() + at * kGates * S,
                       d_products + row * kGates * K};
        for (int64_t panel = 0; panel < heads.panels(); ++panel) {
          Units units = heads.units(head, panel);
          if (t) {
            units.prefetch(values.gates - kGates * S, kGates);
            units.prefetch(values.slope - S, 1);
            units.prefetch(values.d_h - S, 1);
          }
          if (t > 1) {
            units.prefetch(values.c - 2 * S, 1);
            units.prefetch(values.n - 2 * S, 1);
            units.prefetch(values.h - 2 * S, 1);
          }
          back(units, heads.own_units(panel), values,
               blocks[row].gradients(panel));
        }
        if (sums) blocks[row].add(earlier(h, h0) + head * K, d_kernel_of(row));
      }
      auto use = [&](int64_t row, int64_t panel, const Vector* product) {
        for (int64_t v = 0; v < kWide; ++v) {
          if (panel * kWide + v >= heads.panels()) break;
          Units own = heads.own_units(panel * kWide + v);
          float* to = carried_h + row * K;
          own.put(to, 0, own.get(to) + product[v]);
        }
      };
      multiply<kWide>(d_products, kGates * K, rows, kGates * K,
                      matrices + head * size, heads.wide_panels(), use);
      for (int64_t row = 0; row < rows; ++row) {
        if (!starts_at(starts, (first + row) * L + t)) continue;
        for (float* part : {carried_h, carried_c, carried_n, carried_m}) {
          std::fill_n(part + row * K, K, 0.0f);
        }
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      if (sums) blocks[row].flush(d_kernel_of(row));
      int64_t to = (first + row) * S + head * K;
      std::copy_n(carried_h + row * K, K, d_h0->typed_data() + to);
      std::copy_n(carried_c + row * K, K, d_c0->typed_data() + to);
      std::copy_n(carried_n + row * K, K, d_n0->typed_data() + to);
      std::copy_n(carried_m + row * K, K, d_m0->typed_data() + to);
    }
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(slstm_forward, forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Starts>()
                                  .Attr<bool>("exponential")
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(slstm_backward, backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Starts>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());

}  // namespace rnn_jax
