// Gated recurrences whose gates read h, step by step, and their gradients; the
// equations are in ops/gated.py. Rows are independent: each thread runs a few of
// them through all steps.

#include <algorithm>

#include "gated.h"

namespace rnn_jax {
namespace {

// The memory of one row and step in the backward pass.
struct Gradient {
  const float* gates;  // may alias d_u
  const float* extra;  // may alias the stored h_before
  const float* h_before;  // as read: h0, h_{t-1}, or zeros
  const float* c_before;
  const float* d_h;
  float* carried_h;  // without the part through the product
  float* carried_c;
  float* d_u;
  float* d_product;  // contiguous rows: those of d_u are L steps apart
};

// Stores the gradients of u's parts, where those of U h are the same.
template <typename... Vectors>
inline void put_gradients(Units units, const Gradient& at, Vectors... parts) {
  int64_t part = 0;
  for (Vector x : {parts...}) {
    units.put(at.d_u, part, x);
    units.put(at.d_product, part++, x);
  }
}

// Each recurrence has kGates parts of u and U. The backward pass reads as many
// activated gates, which may overwrite u, and an array `extra`: c, or q of a
// GRU, which has no c. A step is never inlined, so that the compiler rounds
// alike wherever it is called.
struct Lstm {
  static constexpr int kGates = 4;
  static constexpr bool kCell = true;

  __attribute__((noinline)) static void step(
      Units units, const Vector* product, const float* u, const float*,
      const float*, float* c_state, float* h, float* gates,
      float* extra) {
    Vector i = sigmoid(units.get(u, 0) + product[0]);
    Vector f = sigmoid(units.get(u, 1) + product[1]);
    Vector g = tanh(units.get(u, 2) + product[2]);
    Vector o = sigmoid(units.get(u, 3) + product[3]);
    Vector c = f * units.get(c_state) + i * g;
    units.put(c_state, 0, c);
    units.put(h, 0, o * tanh(c));
    if (!gates) return;
    units.put(gates, 0, i);
    units.put(gates, 1, f);
    units.put(gates, 2, g);
    units.put(gates, 3, o);
    units.put(extra, 0, c);
  }

  static void back(Units units, const Gradient& at) {
    Vector i = units.get(at.gates, 0), f = units.get(at.gates, 1);
    Vector g = units.get(at.gates, 2), o = units.get(at.gates, 3);
    Vector y = tanh(units.get(at.extra));
    Vector d_h = units.get(at.d_h) + units.get(at.carried_h);
    Vector d_c = units.get(at.carried_c) + through_tanh(d_h * o, y);
    units.put(at.carried_h, 0, Vector{});
    units.put(at.carried_c, 0, d_c * f);
    Vector d_f = d_c * units.get(at.c_before);
    put_gradients(units, at, through_sigmoid(d_c * g, i),
                  through_sigmoid(d_f, f), through_tanh(d_c * i, g),
                  through_sigmoid(d_h * y, o));
  }
};

struct MinLstm {
  static constexpr int kGates = 3;
  static constexpr bool kCell = true;

  __attribute__((noinline)) static void step(
      Units units, const Vector* product, const float* u, const float*,
      const float*, float* c_state, float* h, float* gates,
      float* extra) {
    Vector f = sigmoid(units.get(u, 0) + product[0]);
    Vector g = tanh(units.get(u, 1) + product[1]);
    Vector o = sigmoid(units.get(u, 2) + product[2]);
    Vector c = f * units.get(c_state) + (1.0f - f) * g;
    units.put(c_state, 0, c);
    units.put(h, 0, o * tanh(c));
    if (!gates) return;
    units.put(gates, 0, f);
    units.put(gates, 1, g);
    units.put(gates, 2, o);
    units.put(extra, 0, c);
  }

  static void back(Units units, const Gradient& at) {
    Vector f = units.get(at.gates, 0), g = units.get(at.gates, 1);
    Vector o = units.get(at.gates, 2), y = tanh(units.get(at.extra));
    Vector d_h = units.get(at.d_h) + units.get(at.carried_h);
    Vector d_c = units.get(at.carried_c) + through_tanh(d_h * o, y);
    units.put(at.carried_h, 0, Vector{});
    units.put(at.carried_c, 0, d_c * f);
    Vector d_f = d_c * (units.get(at.c_before) - g);
    put_gradients(units, at, through_sigmoid(d_f, f),
                  through_tanh(d_c * (1.0f - f), g),
                  through_sigmoid(d_h * y, o));
  }
};

struct Gru {
  static constexpr int kGates = 3;
  static constexpr bool kCell = false;

  __attribute__((noinline)) static void step(
      Units units, const Vector* product, const float* u, const float* bias,
      const float* before, float*, float* h, float* gates, float* extra) {
    Vector r = sigmoid(units.get(u, 0) + product[0]);
    Vector z = sigmoid(units.get(u, 1) + product[1]);
    Vector q = product[2] + units.get(bias);
    Vector n = tanh(units.get(u, 2) + r * q);
    units.put(h, 0, z * units.get(before) + (1.0f - z) * n);
    if (!gates) return;
    units.put(gates, 0, r);
    units.put(gates, 1, z);
    units.put(gates, 2, n);
    units.put(extra, 0, q);
  }

  static void back(Units units, const Gradient& at) {
    Vector r = units.get(at.gates, 0), z = units.get(at.gates, 1);
    Vector n = units.get(at.gates, 2), q = units.get(at.extra);
    Vector d_h = units.get(at.d_h) + units.get(at.carried_h);
    Vector d_n = through_tanh(d_h * (1.0f - z), n);
    Vector d_r = through_sigmoid(d_n * q, r);
    Vector d_z = through_sigmoid(d_h * (units.get(at.h_before) - n), z);
    units.put(at.carried_h, 0, d_h * z);
    units.put(at.d_u, 0, d_r);
    units.put(at.d_u, 1, d_z);
    units.put(at.d_u, 2, d_n);
    units.put(at.d_product, 0, d_r);
    units.put(at.d_product, 1, d_z);
    units.put(at.d_product, 2, d_n * r);
  }
};

Shape shape_of(const Floats& u, const Floats& kernel) {
  auto dims = u.dimensions();
  return {dims[0], dims[1], kernel.dimensions()[0]};
}

template <typename Cell>
ffi::Error forward(ffi::ThreadPool threads, Floats u, Floats kernel,
                   Floats bias, Floats h0, Floats c0,
                   ffi::Buffer<ffi::U8> starts, Result h, Result c_last,
                   Result gates, Result extra) {
  constexpr int G = Cell::kGates;
  const Shape shape = shape_of(u, kernel);
  const int64_t L = shape.L, S = shape.S;
  Lines packed(shape.panels() * S * G * kWidth);
  pack_gates<G>(packed.data(), kernel.typed_data(), S);
  const float* matrix = packed.data();
  const bool keeps = gates->element_count();
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines h_memory(2 * rows * S), c_memory(rows * S);
    float *before = h_memory.data(), *after = before + rows * S;
    float* c = c_memory.data();
    std::copy_n(h0.typed_data() + first * S, rows * S, before);
    if (Cell::kCell) {
      std::copy_n(c0.typed_data() + first * S, rows * S, c);
    }
    for (int64_t t = 0; t < L; ++t) {
      for (int64_t row = 0; row < rows; ++row) {
        if (!starts_at(starts, (first + row) * L + t)) continue;
        std::fill_n(before + row * S, S, 0.0f);
        std::fill_n(c + row * S, S, 0.0f);
      }
      auto use = [&](int64_t row, int64_t panel, const Vector* product) {
        int64_t at = (first + row) * L + t;
        if (t + 1 < L) {
          shape.units(panel).prefetch(u.typed_data() + (at + 1) * G * S, G);
          shape.units(panel).prefetch(h->typed_data() + (at + 1) * S, 1);
          if (keeps) {
            shape.units(panel).prefetch(extra->typed_data() + (at + 1) * S, 1);
          }
        }
        Cell::step(shape.units(panel), product, u.typed_data() + at * G * S,
                   bias.typed_data(), before + row * S, c + row * S,
                   after + row * S,
                   keeps ? gates->typed_data() + at * G * S : nullptr,
                   keeps ? extra->typed_data() + at * S : nullptr);
      };
      multiply<G>(before, S, rows, S, matrix, shape.panels(), use);
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(after + row * S, S,
                    h->typed_data() + ((first + row) * L + t) * S);
      }
      std::swap(before, after);
    }
    if (Cell::kCell) {
      std::copy_n(c, rows * S, c_last->typed_data() + first * S);
    }
  });
  return ffi::Error::Success();
}

template <typename Cell>
ffi::Error backward(ffi::ThreadPool threads, Floats kernel, Floats h0,
                    Floats c0, ffi::Buffer<ffi::U8> starts, Floats h,
                    Floats gates, Floats extra, Floats d_h, Floats d_c_last,
                    Result d_h0, Result d_c0, Result d_u, Result before,
                    Result d_product) {
  constexpr int G = Cell::kGates, V = 4;
  const Shape shape = shape_of(h, kernel);
  const int64_t L = shape.L, S = shape.S;
  const int64_t panels = (shape.panels() + V - 1) / V;
  Lines packed(panels * G * S * V * kWidth);
  pack_transposed<V>(packed.data(), kernel.typed_data(), S, G);
  const float* matrix = packed.data();
  const std::vector<float> zeros(S);
  each(pool_of(threads), shape.B, [&](int64_t first, int64_t rows) {
    Lines h_memory(rows * S), c_memory(rows * S);
    float *carried_h = h_memory.data(), *carried_c = c_memory.data();
    Lines product_memory(rows * G * S);
    float* d_products = product_memory.data();
    if (Cell::kCell) {
      std::copy_n(d_c_last.typed_data() + first * S, rows * S, carried_c);
    }
    for (int64_t t = L; t-- > 0;) {
      for (int64_t row = 0; row < rows; ++row) {
        int64_t at = (first + row) * L + t;
        bool begins = starts_at(starts, at);
        Gradient gradient = {
            gates.typed_data() + at * G * S,
            extra.typed_data() + at * S,
            begins ? zeros.data()
            : t    ? h.typed_data() + (at - 1) * S
                   : h0.typed_data() + (first + row) * S,
            begins || !Cell::kCell ? zeros.data()
            : t ? extra.typed_data() + (at - 1) * S
                : c0.typed_data() + (first + row) * S,
            d_h.typed_data() + at * S,
            carried_h + row * S,
            carried_c + row * S,
            d_u->typed_data() + at * G * S,
            d_products + row * G * S};
        for (int64_t panel = 0; panel < shape.panels(); ++panel) {
          Units units = shape.units(panel);
          if (t) {
            units.prefetch(gates.typed_data() + (at - 1) * G * S, G);
            units.prefetch(d_h.typed_data() + (at - 1) * S, 1);
            units.prefetch(before->typed_data() + (at - 1) * S, 1);
            if (t > 1) units.prefetch(extra.typed_data() + (at - 2) * S, 1);
            if (t > 1) units.prefetch(h.typed_data() + (at - 2) * S, 1);
          }
          Cell::back(units, gradient);
          Vector h_before = units.get(gradient.h_before);
          units.put(before->typed_data() + at * S, 0, h_before);
        }
        if (!Cell::kCell) {
          std::copy_n(gradient.d_product, G * S,
                      d_product->typed_data() + at * G * S);
        }
      }
      auto use = [&](int64_t row, int64_t panel, const Vector* product) {
        for (int64_t v = 0; v < V && panel * V + v < shape.panels(); ++v) {
          Units units = shape.units(panel * V + v);
          float* to = carried_h + row * S;
          units.put(to, 0, units.get(to) + product[v]);
        }
      };
      multiply<V>(d_products, G * S, rows, G * S, matrix, panels, use);
      for (int64_t row = 0; row < rows; ++row) {
        if (!starts_at(starts, (first + row) * L + t)) continue;
        std::fill_n(carried_h + row * S, S, 0.0f);
        std::fill_n(carried_c + row * S, S, 0.0f);
      }
    }
    std::copy_n(carried_h, rows * S, d_h0->typed_data() + first * S);
    if (Cell::kCell) {
      std::copy_n(carried_c, rows * S, d_c0->typed_data() + first * S);
    }
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
      .Arg<Floats>()
      .Arg<ffi::Buffer<ffi::U8>>()
      .Ret<Floats>()
      .Ret<Floats>()
      .Ret<Floats>()
      .Ret<Floats>();
}

auto backward_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<ffi::Buffer<ffi::U8>>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Arg<Floats>()
      .Ret<Floats>()
      .Ret<Floats>()
      .Ret<Floats>()
      .Ret<Floats>()
      .Ret<Floats>();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(lstm_forward, forward<Lstm>, forward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(lstm_backward, backward<Lstm>,
                              backward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(min_lstm_forward, forward<MinLstm>,
                              forward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(min_lstm_backward, backward<MinLstm>,
                              backward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gru_forward, forward<Gru>, forward_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gru_backward, backward<Gru>, backward_binding());

}  // namespace rnn_jax
