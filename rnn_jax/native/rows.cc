// Sums of rows in an order that depends on a row's length only: a row's bits
// are the same alone and among others, on any number of threads.
//
// Shapes, row-major: x BxN; sums of an axis, x OxNxI. The numbers of a row are
// added lane by lane of kSums vectors, and then these in turn; those of an axis
// before others (I > 1), and of a product, n = 0, 1, ... in turn.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "functions.h"
#include "rows.h"
#include "xla.h"

namespace rnn_jax {
namespace {

constexpr int kSums = 4;               // vectors
constexpr int64_t kPiece = 1 << 12;    // of a row of which some threads take one
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Float32 = ffi::Buffer<ffi::F32>;
using Float32Result = ffi::ResultBuffer<ffi::F32>;

inline float sum_of(const Vector* sums) {
  Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float total = 0;
  for (int i = 0; i < kWidth; ++i) total += all[i];
  return total;
}

// The sum of each(a vector from n on, how many of its numbers count).
template <typename Each>
inline float sum(int64_t N, const Each& each) {
  Vector sums[kSums] = {};
  int64_t n = 0;
  for (; n + kSums * kWidth <= N; n += kSums * kWidth) {
    for (int i = 0; i < kSums; ++i) sums[i] += each(n + i * kWidth, kWidth);
  }
  for (; n < N; n += kWidth) sums[0] += each(n, N - n);
  return sum_of(sums);
}

// y[r, f] = sum_k each(r, k) w[k, f] of R rows, which are `y_row` apart: k in
// turn, whatever R is.
template <int R, typename Each>
inline void add_rows(const float* w, int64_t between, int64_t K, int64_t F,
                     const Each& each, float* y, int64_t y_row = 0) {
  auto run = [&](auto vectors, int64_t f) {
    constexpr int V = vectors;
    Vector sums[R][V] = {};
    for (int64_t k = 0; k < K; ++k) {
      for (int i = 0; i < V; ++i) {
        Vector own = load(w + k * between + f + i * kWidth, F - f - i * kWidth);
        for (int r = 0; r < R; ++r) sums[r][i] += own * each(r, k);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) {
        const int64_t at = f + i * kWidth;
        store(y + r * y_row + at, sums[r][i], F - at);
      }
    }
  };
  constexpr int V = R > 1 ? 2 : kSums;  // of R V sums in registers
  int64_t f = 0;
  for (; f + V * kWidth <= F; f += V * kWidth) {
    run(std::integral_constant<int, V>(), f);
  }
  for (; f < F; f += kWidth) run(std::integral_constant<int, 1>(), f);
}

// The functions by their numbers in ops/fixed_order/schedule.py.
enum Function : int64_t {
  kExp, kLog, kLog1p, kTanh, kLogistic, kExpm1, kErf, kSin, kCos, kSilu,
  kLog1pExp
};

template <float F(float)>
Vector each(Vector x) {
  for (int i = 0; i < kWidth; ++i) x[i] = F(x[i]);
  return x;
}

}  // namespace

__attribute__((noinline)) void add_up(const float* x, int64_t N, int64_t I,
                                      float* y) {
  if (I > 1) {
    return add_rows<1>(x, I, N, I, [](int, int64_t) { return 1.0f; }, y);
  }
  *y = sum(N, [&](int64_t n, int64_t left) { return load(x + n, left); });
}

__attribute__((noinline)) void multiply_rows(const Rows& rows, const float* x,
                                             int64_t x_k, const float* w,
                                             int64_t w_k, int64_t w_f,
                                             int64_t K, int64_t F, float* y) {
  const int64_t count = rows.count, x_row = rows.x, y_row = rows.y;
  if (w_f == 1 && F > 1) {
    auto some = [&](auto together) {
      add_rows<together>(
          w, w_k, K, F, [&](int r, int64_t k) { return x[r * x_row + k * x_k]; },
          y, y_row);
      x += together * x_row;
      y += together * y_row;
    };
    int64_t left = count;
    for (; left >= kTogether; left -= kTogether) {
      some(std::integral_constant<int, kTogether>());
    }
    for (; left > 0; --left) some(std::integral_constant<int, 1>());
    return;
  }
  for (int64_t r = 0; r < count; ++r, x += x_row, y += y_row) {
    for (int64_t f = 0; f < F; ++f) {
      const float* own = w + f * w_f;
      if (x_k == 1 && w_k == 1) {
        y[f] = sum(K, [&](int64_t k, int64_t left) {
          return load(x + k, left) * load(own + k, left);
        });
      } else {
        float total = 0;
        for (int64_t k = 0; k < K; ++k) total += x[k * x_k] * own[k * w_k];
        y[f] = total;
      }
    }
  }
}

// A vector of its own at the end, so that a number has one result anywhere.
__attribute__((noinline)) bool apply_function(int64_t name, const float* x,
                                              int64_t n, float* y) {
  auto run = [&](const auto& f) {
    for (int64_t i = 0; i < n; i += kWidth) {
      store(y + i, f(load(x + i, n - i)), n - i);
    }
    return true;
  };
  switch (static_cast<Function>(name)) {
    case kExp: return run(exponential_or_zero);
    case kLog: return run(logarithm);
    case kLog1p: return run(logarithm_1p);
    case kTanh: return run([](Vector x) { return tanh(x); });
    case kLogistic: return run([](Vector x) { return sigmoid(x); });
    case kExpm1: return run(each<std::expm1>);
    case kErf: return run(each<std::erf>);
    case kSin: return run(each<std::sin>);
    case kCos: return run(each<std::cos>);
    case kSilu: return run([](Vector x) { return x * sigmoid(x); });
    case kLog1pExp:
      return run([](Vector x) { return logarithm_1p(exponential_or_zero(x)); });
  }
  return false;
}

namespace {

ffi::Error axis_sums(ffi::ThreadPool threads, Float32 x, Float32Result y) {
  auto dims = x.dimensions();
  const int64_t N = dims[1], I = dims[2];
  for_each(pool_of(threads), dims[0], N * I, [&](int64_t o) {
    add_up(x.typed_data() + o * N * I, N, I, y->typed_data() + o * I);
  });
  return ffi::Error::Success();
}

// The largest of numbers besides NaN.
inline float largest(const float* x, int64_t N) {
  Vector most[kSums];
  for (Vector& part : most) part = broadcast(0) - kInfinity;
  int64_t n = 0;
  for (; n + kSums * kWidth <= N; n += kSums * kWidth) {
    for (int i = 0; i < kSums; ++i) {
      Vector own = load(x + n + i * kWidth);
      most[i] = select(own > most[i], own, most[i]);
    }
  }
  float all = -kInfinity;
  for (const Vector& part : most) {
    for (int i = 0; i < kWidth; ++i) all = std::max(all, part[i]);
  }
  for (; n < N; ++n) {
    if (x[n] > all) all = x[n];
  }
  return all;
}

ffi::Error logsumexp(ffi::ThreadPool threads, Float32 x, Float32Result y) {
  const int64_t B = x.dimensions()[0], N = x.dimensions()[1];
  const int64_t pieces = (N + kPiece - 1) / kPiece;
  std::vector<float> most(B * pieces), total(B * pieces);
  const Pool pool = pool_of(threads);
  auto each = [&](const auto& run) {
    for_each(pool, B * pieces, std::min(N, kPiece), [&](int64_t item) {
      const int64_t first = item % pieces * kPiece;
      run(item, x.typed_data() + item / pieces * N + first,
          std::min(N - first, kPiece));
    });
  };
  each([&](int64_t item, const float* from, int64_t n) {
    most[item] = largest(from, n);
  });
  for (int64_t b = 0; b < B; ++b) {
    auto own = most.begin() + b * pieces;
    std::fill(own, own + pieces, *std::max_element(own, own + pieces));
  }
  each([&](int64_t item, const float* from, int64_t N) {
    const float shift = std::isfinite(most[item]) ? most[item] : 0;
    total[item] = sum(N, [&](int64_t n, int64_t left) {
      Vector own = exponential(load(from + n, left) - shift);
      if (left < kWidth) {
        for (int64_t i = left; i < kWidth; ++i) own[i] = 0;
      }
      return own;
    });
  });
  for (int64_t b = 0; b < B; ++b) {
    float all = 0, shift = most[b * pieces];
    for (int64_t i = 0; i < pieces; ++i) all += total[b * pieces + i];
    const bool none = shift == -kInfinity && !std::isnan(all);
    shift = std::isfinite(shift) ? shift : 0;
    y->typed_data()[b] = none ? -kInfinity : shift + std::log(all);
  }
  return ffi::Error::Success();
}

inline bool any(Integers where) {
  int32_t all = 0;
  for (int i = 0; i < kWidth; ++i) all |= where[i];
  return all;
}

// The first of the largest; the last number if all are NaN.
ffi::Error argmax(ffi::ThreadPool threads, Float32 x,
                  ffi::ResultBuffer<ffi::S32> y) {
  const int64_t N = x.dimensions()[1];
  for_each(pool_of(threads), x.dimensions()[0], N, [&](int64_t b) {
    const float* from = x.typed_data() + b * N;
    const float most = largest(from, N);
    int64_t n = 0;
    // std::find compares one number at a time.
    for (; n + kSums * kWidth <= N; n += kSums * kWidth) {
      Integers equal{};
      for (int i = 0; i < kSums; ++i) equal |= load(from + n + i * kWidth) == most;
      if (any(equal)) break;
    }
    const float* at = std::find(from + n, from + N, most);
    const int64_t first = std::min<int64_t>(at - from, N - 1);
    y->typed_data()[b] = static_cast<int32_t>(first);
  });
  return ffi::Error::Success();
}

// y[o, f] = sum_k x[o, k] w[o, k, f] for all o of some axes. `axes` has for
// each of them its size and by how far x and w are apart along it, the last
// axis moving first; `inner` K, F, x's step along k, w's along k and along f.
ffi::Error products(ffi::ThreadPool threads, Float32 x, Float32 w,
                    Float32Result y, ffi::Span<const int64_t> axes,
                    ffi::Span<const int64_t> inner) {
  const int64_t K = inner[0], F = inner[1];
  int64_t count = 1;
  for (size_t i = 0; i < axes.size(); i += 3) count *= axes[i];
  for_each(pool_of(threads), count, K * F, [&](int64_t item) {
    const float *of_x = x.typed_data(), *of_w = w.typed_data();
    int64_t rest = item;
    for (int64_t i = static_cast<int64_t>(axes.size()) - 3; i >= 0; i -= 3) {
      of_x += rest % axes[i] * axes[i + 1];
      of_w += rest % axes[i] * axes[i + 2];
      rest /= axes[i];
    }
    multiply_rows({1}, of_x, inner[2], of_w, inner[3], inner[4], K, F,
                  y->typed_data() + item * F);
  });
  return ffi::Error::Success();
}

ffi::Error function(ffi::ThreadPool threads, Float32 x, Float32Result y,
                    int64_t name) {
  const int64_t N = x.element_count();
  std::atomic<bool> known{true};
  for_each(pool_of(threads), (N + kPiece - 1) / kPiece, kPiece, [&](int64_t i) {
    const int64_t n = i * kPiece;
    if (!apply_function(name, x.typed_data() + n, std::min(kPiece, N - n),
                        y->typed_data() + n)) {
      known = false;
    }
  });
  if (!known) return ffi::Error::InvalidArgument("name: unknown");
  return ffi::Error::Success();
}

// 1, of which XLA doesn't know.
ffi::Error one(Float32Result y) {
  y->typed_data()[0] = 1;
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_sums, axis_sums,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Ret<Float32>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_logsumexp, logsumexp,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Ret<Float32>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_argmax, argmax,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Ret<ffi::Buffer<ffi::S32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_products, products,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Arg<Float32>()
                                  .Ret<Float32>()
                                  .Attr<ffi::Span<const int64_t>>("axes")
                                  .Attr<ffi::Span<const int64_t>>("inner"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_function, function,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Ret<Float32>()
                                  .Attr<int64_t>("name"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_one, one, ffi::Ffi::Bind().Ret<Float32>());

}  // namespace rnn_jax
