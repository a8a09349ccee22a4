// The gated linear recurrence fused with the maps of its inputs: a short causal
// convolution of the channels of q, k and v, their activations and the gate's
// sigmoid, inside the passes over time. No intermediate result between the
// projection and y is stored.
//
// Shapes, row-major: the projection BxLx(HC) with a head's channels q (K), k
// (K), gate (G: K or 1), v (P) and a rest (R) that this doesn't read; the
// inputs before the first step Bx(W-1)x(HE), the taps Wx(HE) and their bias HE
// with a head's channels q, k, v (E = 2K + P); y and the skip's weights HP;
// biases of the gate HxG; starts BxL.
//
//   x_t = taps_bias + sum_{d<W} taps_d * projection_{t-d}     of this document
//   q, k, v = activations of x_t      a = sigmoid(gate + bias), 0 at a start
//   coupled: k is scaled by 1 - sigmoid(gate + bias)      y_t += skip * v_t

#include <array>
#include <cstring>

#include "activations.h"
#include "gla_passes.h"
#include "xla.h"

namespace rnn_jax {
namespace {

enum Activation : int64_t { kIdentity, kSigmoid, kTanh, kSilu };

// f(x), and its derivative.
inline Vector activate(Activation f, Vector x, Vector* slope) {
  if (f == kIdentity) {
    *slope = broadcast(1.0f);
    return x;
  }
  if (f == kTanh) {
    Vector y = tanh(x);
    *slope = 1.0f - y * y;
    return y;
  }
  Vector s = sigmoid(x);
  if (f == kSigmoid) {
    *slope = s * (1.0f - s);
    return s;
  }
  *slope = s * (1.0f + x * (1.0f - s));
  return x * s;
}

// n adjacent channels of a head, and their offsets.
struct Range {
  int64_t n;
  int64_t in_projection, in_taps;  // offsets within a row
};

constexpr int64_t kAhead = 8;  // steps from asking for memory to using it

template <typename T>
struct Projected {
  using Format = T;

  GlaShape shape;
  int64_t C, R, W;  // W: 1 if there is no convolution
  std::array<Activation, 3> activations;  // of q, k, v
  const T* projection;
  bool coupled;
  const float* inputs;
  const float *taps, *taps_bias, *bias, *skip;  // may be null
  const uint8_t* starts;              // may be null
  // Gradients: of the outputs, and where to write them.
  const T *d_y, *d_rest;
  T* d_projection;
  float* d_inputs;
  float *d_taps, *d_taps_bias, *d_bias, *d_skip;  // a row's own
  float* later;  // BxHx(W-1)xE: gradients of x of the steps after a segment

  // A thread's buffers for a segment, rows of steps. Those of raw inputs begin
  // W - 1 steps earlier; those of derivatives, which become gradients of x, end
  // W - 1 steps later. The keys' offsets don't depend on M.
  struct Memory {
    float *raw_keys, *keys, *a, *d_keys, *d_a, *unscaled, *scale,
        *raw_columns, *columns, *d_columns;

    Memory(const Projected& p, int64_t M, float* at) {
      int64_t K = p.shape.K, steps = p.most_steps(), more = steps + p.W - 1;
      raw_keys = at;
      keys = raw_keys + more * 2 * K;
      a = keys + steps * 2 * K;
      d_keys = a + steps * K;
      d_a = d_keys + more * 2 * K;
      unscaled = d_a + steps * K;  // k before its scale, if coupled
      scale = unscaled + steps * K;
      raw_columns = scale + steps * K;
      columns = raw_columns + more * M;
      d_columns = columns + steps * M;
    }
  };

  int64_t most_steps() const { return std::max(shape.segment, kPiece); }

  int64_t floats(int64_t, int64_t M) const {
    int64_t K = shape.K, steps = most_steps(), more = steps + W - 1;
    return more * (4 * K + 2 * M) + steps * (6 * K + M);
  }

  int64_t E() const { return 2 * shape.K + shape.P; }
  int64_t G() const { return shape.decays(); }
  int64_t in_projection(const Unit& unit, int64_t t) const {
    return ((unit.row * shape.L + t) * shape.H + unit.head) * C;
  }
  Range keys_of(const Unit& unit) const {
    return {2 * shape.K, unit.head * C, unit.head * E()};
  }
  Range columns_of(const Unit& unit) const {
    int64_t K = shape.K;
    return {unit.columns, unit.head * C + 2 * K + G() + unit.first,
            unit.head * E() + 2 * K + unit.first};
  }

  // How many steps back x_t reaches: at most to its document's first step.
  int64_t reach(const Unit& unit, int64_t t) const {
    if (!starts) return W - 1;
    const uint8_t* of_row = starts + unit.row * shape.L;
    int64_t d = 0;
    while (d < W - 1 && (t - d < 0 || !of_row[t - d])) ++d;
    return d;
  }

  Steps read(const Unit& unit, int64_t begin, int64_t end, int64_t M,
             float* at) const {
    return read_all(unit, begin, end, M, at, false);
  }

  Steps read_for_gradients(const Unit& unit, int64_t begin, int64_t end,
                           int64_t M, float* at) const {
    return read_all(unit, begin, end, M, at, true);
  }

  void read_keys(const Unit& unit, int64_t begin, int64_t end,
                 float* at) const {
    Memory memory(*this, 0, at);
    read_keys(unit, begin, end, memory, true);
  }

  void add_to_output(const Unit& unit, const float* v, float* y) const {
    if (!skip) return;
    const float* own = skip + unit.head * shape.P + unit.first;
    for (int64_t j = 0; j < unit.columns; ++j) y[j] += own[j] * v[j];
  }

  void add_columns(const Unit& unit, int64_t begin, int64_t end, float* dv,
                   int64_t M, float* at) const {
    Memory memory(*this, M, at);
    if (skip) add_skip(unit, begin, end, M, memory.columns, dv);
    for (int64_t i = 0; i < (end - begin) * M; i += kWidth) {
      float* d = memory.d_columns + i;
      store(d, load(d) * load(dv + i));
    }
    float* after = later_of(unit) + (W - 1) * 2 * shape.K;
    add(unit, begin, end, columns_of(unit), memory.raw_columns,
        memory.d_columns, M, after + unit.first, shape.P);
  }

  void add_keys(const Unit& unit, int64_t begin, int64_t end,
                const KeyGradients& d, float* at) const {
    int64_t K = shape.K;
    Memory memory(*this, 0, at);
    float* to_bias =
        d_bias ? d_bias + (unit.row * shape.H + unit.head) * G() : nullptr;
    for (int64_t t = begin; t < end; ++t) {
      int64_t i = t - begin;
      float *d_keys = memory.d_keys + i * 2 * K, *d_a = memory.d_a + i * K;
      for (int64_t j = 0; j < K; ++j) d_keys[j] *= d.q(i)[j];
      for (int64_t j = 0; j < K; ++j) d_keys[K + j] *= d.k(i)[j];
      for (int64_t j = 0; j < K; ++j) d_a[j] *= d.a(i)[j];
      if (coupled) {
        // d_a is of the gate, whose slope a start doesn't change here.
        const float *k = memory.unscaled + i * K, *z = memory.scale + i * K;
        for (int64_t j = 0; j < K; ++j) {
          d_a[j] -= d.k(i)[j] * k[j] * z[j] * (1 - z[j]);
        }
      }
      float total = 0;
      for (int64_t j = 0; j < K; ++j) total += d_a[j];
      if (shape.by_head) d_a[0] = total;
      T* to = d_projection + in_projection(unit, t);
      write(d_a, G(), to + 2 * K);
      for (int64_t j = 0; to_bias && j < G(); ++j) to_bias[j] += d_a[j];
      const T* rest =
          d_rest + ((unit.row * shape.L + t) * shape.H + unit.head) * R;
      std::copy(rest, rest + R, to + C - R);
    }
    add(unit, begin, end, keys_of(unit), memory.raw_keys, memory.d_keys, 2 * K,
        later_of(unit), 2 * K);
  }

 private:
  float* later_of(const Unit& unit) const {
    return later + unit.sequence() * (W - 1) * E();
  }

  Steps read_all(const Unit& unit, int64_t begin, int64_t end, int64_t M,
                 float* at, bool slopes) const {
    Memory memory(*this, M, at);
    read_keys(unit, begin, end, memory, slopes);
    Range range = columns_of(unit);
    Raw raw = raw_of(unit, begin, end, range, M, memory.raw_columns);
    for (int64_t t = begin; t < end; ++t) {
      int64_t i = t - begin, back = reach(unit, t);
      for (int64_t j = 0; j < M; j += kWidth) {
        int64_t n = std::max<int64_t>(0, range.n - j);
        Vector slope, x = convolved(range, raw, i, back, j, n);
        Vector v = activate(activations[2], x, &slope);
        store(memory.columns + i * M + j, v);
        if (slopes) store(memory.d_columns + i * M + j, slope);
      }
    }
    return {memory.keys, memory.keys + shape.K, memory.a, memory.columns,
            2 * shape.K, shape.K, M};
  }

  void read_keys(const Unit& unit, int64_t begin, int64_t end,
                 const Memory& memory, bool slopes) const {
    int64_t K = shape.K;
    Range range = keys_of(unit);
    Raw raw = raw_of(unit, begin, end, range, range.n, memory.raw_keys);
    for (int64_t t = begin; t < end; ++t) {
      int64_t i = t - begin, back = reach(unit, t);
      prefetch(unit, t + kAhead);
      read_decays(unit, t, memory.a + i * K, memory.scale + i * K,
                  slopes ? memory.d_a + i * K : nullptr);
      for (int64_t half = 0; half < 2; ++half) {
        auto read = [&](int64_t j, int64_t n) __attribute__((always_inline)) {
          int64_t to = i * 2 * K + j;
          Vector slope, x = convolved(range, raw, i, back, j, n);
          Vector y = activate(activations[half], x, &slope);
          if (coupled && half == 1) {
            int64_t of_scale = i * K + j - K;
            Vector z = load(memory.scale + of_scale, n);
            store(memory.unscaled + of_scale, y, n);
            y *= z;
            slope *= z;
          }
          store(memory.keys + to, y, n);
          if (slopes) store(memory.d_keys + to, slope, n);
        };
        int64_t j = half * K, end_j = j + K;
        for (; j + kWidth <= end_j; j += kWidth) read(j, kWidth);
        if (j < end_j) read(j, end_j - j);
      }
    }
  }

  // Asks for all that is read and written of a step.
  void prefetch(const Unit& unit, int64_t t) const {
    if (t >= shape.L) return;
    auto row = reinterpret_cast<const char*>(projection + in_projection(unit, t));
    for (int64_t at = 0; at < C * int64_t{sizeof(T)}; at += 64) {
      __builtin_prefetch(row + at);
    }
  }

  // `scale`, of k, is written if coupled; d_a, the slope, if it isn't null.
  void read_decays(const Unit& unit, int64_t t, float* a, float* scale,
                   float* d_a) const {
    int64_t K = shape.K;
    const T* gate = projection + in_projection(unit, t) + 2 * K;
    copy_padded(gate, G(), G(), a);
    if (shape.by_head) std::fill(a, a + K, *a);
    const float* own = bias ? bias + unit.head * G() : nullptr;
    bool begins = starts && starts[unit.row * shape.L + t];
    for (int64_t j = 0; j < K; j += kWidth) {
      Vector x = load(a + j, K - j), slope;
      if (own) x += shape.by_head ? broadcast(*own) : load(own + j, K - j);
      // 1 - y would have no digits near y = 1.
      if (coupled) store(scale + j, sigmoid(-x), K - j);
      Vector y = activate(kSigmoid, x, &slope);
      if (begins) y = slope = Vector{};
      store(a + j, y, K - j);
      if (d_a) store(d_a + j, slope, K - j);
    }
  }

  // Raw inputs of steps, rows `apart` floats apart.
  struct Raw {
    const float* first;
    int64_t apart;
  };

  // Those from `begin` on, and the W - 1 rows before: the projection itself if
  // it is float, else a copy with rows of M.
  Raw raw_of(const Unit& unit, int64_t begin, int64_t end, const Range& range,
             int64_t M, float* copy) const {
    const T* rows =
        projection + unit.row * shape.L * shape.H * C + range.in_projection;
    if constexpr (std::is_same_v<T, float>) {
      if (!taps) return {rows + begin * shape.H * C, shape.H * C};
    }
    float* to = copy;
    for (int64_t t = begin - (W - 1); t < end; ++t, to += M) {
      if (t >= 0) {
        copy_padded(rows + t * shape.H * C, range.n, M, to);
      } else {
        int64_t row = unit.row * (W - 1) + W - 1 + t;
        const float* from = inputs + row * shape.H * E();
        copy_padded(from + range.in_taps, range.n, M, to);
      }
    }
    return {copy + (W - 1) * M, M};
  }

  // Row d of the taps.
  const float* tap(const Range& range, int64_t d) const {
    return taps + d * shape.H * E() + range.in_taps;
  }

  // x of the i-th step: up to kWidth of n channels, from the j-th on.
  Vector convolved(const Range& range, const Raw& raw, int64_t i, int64_t back,
                   int64_t j, int64_t n) const {
    const float* newest = raw.first + i * raw.apart + j;
    if (!taps) return load(newest, n);
    Vector x{};
    if (taps_bias) x = load(taps_bias + range.in_taps + j, n);
    for (int64_t d = 0; d <= back; ++d) {
      x += load(tap(range, d) + j, n) * load(newest - d * raw.apart, n);
    }
    return x;
  }

  // From the gradients of x, rows of M, to those of raw inputs and taps.
  // `after` has those of the W - 1 steps after the segment, rows of
  // `between`; it is overwritten with its first ones, for the segment before it.
  void add(const Unit& unit, int64_t begin, int64_t end, const Range& range,
           const float* raw, float* d, int64_t M, float* after,
           int64_t between) const {
    int64_t steps = end - begin;
    for (int64_t i = 0; i < W - 1; ++i) {
      copy_padded(after + i * between, range.n, M, d + (steps + i) * M);
    }
    for (int64_t i = 0; i < W - 1; ++i) {
      std::copy(d + i * M, d + i * M + range.n, after + i * between);
    }
    for (int64_t t = begin; t < end; ++t) {
      T* to = d_projection + (unit.row * shape.L + t) * shape.H * C +
              range.in_projection;
      if (!taps) {
        write(d + (t - begin) * M, range.n, to);
        continue;
      }
      spread(unit, t, begin, range, d, M, [&](int64_t j, Vector x, int64_t n) {
        write_vector(x, std::min<int64_t>(n, kWidth), to + j);
      });
    }
    if (!taps) return;
    for (int64_t t = -(W - 1); begin == 0 && t < 0; ++t) {
      int64_t row = unit.row * (W - 1) + W - 1 + t;
      float* to = d_inputs + row * shape.H * E() + range.in_taps;
      spread(unit, t, 0, range, d, M, [&](int64_t j, Vector x, int64_t n) {
        store(to + j, x, n);
      });
    }
    if (d_taps_bias) {
      float* to = d_taps_bias + unit.row * shape.H * E() + range.in_taps;
      for (int64_t i = 0; i < steps; ++i) {
        for (int64_t j = 0; j < range.n; ++j) to[j] += d[i * M + j];
      }
    }
    for (int64_t back = 0; back < W; ++back) {
      int64_t row = unit.row * W + back;
      float* to = d_taps + row * shape.H * E() + range.in_taps;
      for (int64_t j = 0; j < range.n; j += kWidth) {
        Vector sum = load(to + j, range.n - j);
        for (int64_t i = 0; i < steps; ++i) {
          if (back > reach(unit, begin + i)) continue;
          sum += load(d + i * M + j, range.n - j) *
                 load(raw + (i + W - 1 - back) * M + j, range.n - j);
        }
        store(to + j, sum, range.n - j);
      }
    }
  }

  // Adds the skip's gradients: to those of v, and to its weights'.
  void add_skip(const Unit& unit, int64_t begin, int64_t end, int64_t M,
                const float* v, float* dv) const {
    const float* weights = skip + unit.head * shape.P + unit.first;
    float* d_weights =
        d_skip + unit.sequence() * shape.P + unit.first;
    for (int64_t t = begin; t < end; ++t, v += M, dv += M) {
      const T* dy = d_y + unit.at(t, shape.P) + unit.first;
      for (int64_t j = 0; j < unit.columns; ++j) {
        float d = to_float(dy[j]);
        dv[j] += weights[j] * d;
        d_weights[j] += v[j] * d;
      }
    }
  }

  // The gradient of a step's raw inputs, from those of x since `begin`.
  template <typename Take>
  void spread(const Unit& unit, int64_t t, int64_t begin, const Range& range,
              const float* d, int64_t M, const Take& take) const {
    int64_t most = std::min(W - 1, shape.L - 1 - t);
    for (int64_t j = 0; j < range.n; j += kWidth) {
      int64_t n = range.n - j;
      Vector x{};
      for (int64_t back = 0; back <= most; ++back) {
        if (t + back < 0 || back > reach(unit, t + back)) continue;
        const float* later_d = d + (t + back - begin) * M;
        x += load(tap(range, back) + j, n) * load(later_d + j, n);
      }
      take(j, x, n);
    }
  }

  static void write_vector(Vector x, int64_t n, T* to) {
    float numbers[kWidth];
    store(numbers, x);
    write(numbers, n, to);
  }
};

using Float32 = ffi::Buffer<ffi::F32>;
using Float32Result = ffi::ResultBuffer<ffi::F32>;
using AnyResult = ffi::Result<ffi::AnyBuffer>;
using Bytes = ffi::Buffer<ffi::U8>;

const float* or_null(const Float32& x) {
  return x.element_count() ? x.typed_data() : nullptr;
}

// What is learned, any of it empty.
struct Weights {
  const Float32 &taps, &taps_bias, &bias, &skip;
};

// The widths K, P and G of a head, the number of heads, the activations of q, k
// and v, whether k is scaled, and the steps between stored states.
struct Attributes {
  int64_t keys, values, gates, heads, query, key, value, coupled, segment;
};

template <typename T>
Projected<T> source_of(const Attributes& given, const Float32& inputs,
                       const ffi::AnyBuffer& projection,
                       const Weights& weights, const Bytes& starts) {
  auto dims = projection.dimensions();
  Projected<T> source{};
  source.shape = {dims[0], dims[1], given.heads, given.keys, given.values,
                  given.gates < given.keys, false, given.segment};
  source.C = dims[2] / given.heads;
  source.R = source.C - 2 * given.keys - given.gates - given.values;
  source.taps = or_null(weights.taps);
  source.taps_bias = or_null(weights.taps_bias);
  source.bias = or_null(weights.bias);
  source.skip = or_null(weights.skip);
  source.W = source.taps ? weights.taps.dimensions()[0] : 1;
  source.activations = {static_cast<Activation>(given.query),
                        static_cast<Activation>(given.key),
                        static_cast<Activation>(given.value)};
  source.coupled = given.coupled;
  source.projection = static_cast<const T*>(projection.untyped_data());
  source.inputs = inputs.typed_data();
  source.starts = starts.element_count() ? starts.typed_data() : nullptr;
  return source;
}

ffi::Error forward(ffi::ThreadPool threads, ffi::AnyBuffer state,
                   Float32 inputs, ffi::AnyBuffer projection, Float32 taps,
                   Float32 taps_bias, Float32 bias, Float32 skip, Bytes starts,
                   AnyResult last, AnyResult y, Float32Result kept,
                   AnyResult same, int64_t keys, int64_t values, int64_t gates,
                   int64_t heads, int64_t query, int64_t key, int64_t value,
                   int64_t coupled, int64_t segment) {
  if (same->element_count() &&
      same->untyped_data() != projection.untyped_data()) {  // not in place
    std::memcpy(same->untyped_data(), projection.untyped_data(),
                projection.size_bytes());
  }
  Attributes given{keys, values, gates,   heads,  query,
                   key,  value,  coupled, segment};
  Weights weights{taps, taps_bias, bias, skip};
  auto types = std::make_pair(projection.element_type(), state.element_type());
  return with_formats(types, [&](auto format, auto of_state) {
    using T = decltype(format);
    using State = decltype(of_state);
    auto source = source_of<T>(given, inputs, projection, weights, starts);
    run_forward<false>(pool_of(threads), source.shape, source,
                       static_cast<const State*>(state.untyped_data()),
                       static_cast<State*>(last->untyped_data()),
                       static_cast<T*>(y->untyped_data()),
                       kept->element_count() ? kept->typed_data() : nullptr);
  });
}

ffi::Error backward(ffi::ThreadPool threads, Float32 kept, Float32 inputs,
                    ffi::AnyBuffer projection, Float32 taps, Float32 taps_bias,
                    Float32 bias, Float32 skip, Bytes starts, Float32 d_last,
                    ffi::AnyBuffer d_y, ffi::AnyBuffer d_rest,
                    Float32Result d_state, Float32Result d_inputs,
                    AnyResult d_projection, Float32Result d_taps,
                    Float32Result d_taps_bias, Float32Result d_bias,
                    Float32Result d_skip, int64_t keys, int64_t values,
                    int64_t gates, int64_t heads, int64_t query, int64_t key,
                    int64_t value, int64_t coupled, int64_t segment) {
  Attributes given{keys, values, gates,   heads,  query,
                   key,  value,  coupled, segment};
  Weights weights{taps, taps_bias, bias, skip};
  return with_format(projection.element_type(), [&](auto format) {
    using T = decltype(format);
    auto source = source_of<T>(given, inputs, projection, weights, starts);
    source.d_y = static_cast<const T*>(d_y.untyped_data());
    source.d_rest = static_cast<const T*>(d_rest.untyped_data());
    source.d_projection = static_cast<T*>(d_projection->untyped_data());
    source.d_inputs = d_inputs->typed_data();
    auto zeroed = [](Float32Result& x) -> float* {
      std::fill_n(x->typed_data(), x->element_count(), 0.0f);
      return x->element_count() ? x->typed_data() : nullptr;
    };
    source.d_taps = zeroed(d_taps);
    source.d_taps_bias = zeroed(d_taps_bias);
    source.d_bias = zeroed(d_bias);
    source.d_skip = zeroed(d_skip);
    const GlaShape& shape = source.shape;
    std::vector<float> later(shape.B * shape.H * (source.W - 1) * source.E());
    source.later = later.data();
    std::copy_n(d_last.typed_data(), d_last.element_count(),
                d_state->typed_data());
    run_backward<false>(pool_of(threads), shape, source, kept.typed_data(),
                        source.d_y, d_state->typed_data());
  });
}

}  // namespace
}  // namespace rnn_jax

#define RNN_JAX_ATTRIBUTES        \
  .Attr<int64_t>("keys")          \
      .Attr<int64_t>("values")    \
      .Attr<int64_t>("gates")     \
      .Attr<int64_t>("heads")     \
      .Attr<int64_t>("query")     \
      .Attr<int64_t>("key")       \
      .Attr<int64_t>("value")     \
      .Attr<int64_t>("coupled")   \
      .Attr<int64_t>("segment")

XLA_FFI_DEFINE_HANDLER_SYMBOL(gla_projected_forward, rnn_jax::forward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Bytes>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                      RNN_JAX_ATTRIBUTES);

XLA_FFI_DEFINE_HANDLER_SYMBOL(gla_projected_backward, rnn_jax::backward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Bytes>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::Float32>() RNN_JAX_ATTRIBUTES);
