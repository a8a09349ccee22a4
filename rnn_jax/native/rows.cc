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
#include "xla.h"

namespace rnn_jax {
namespace {

constexpr int kSums = 4;               // vectors
constexpr int64_t kShared = 1 << 16;   // numbers from which threads share them
constexpr int64_t kItem = 1 << 14;     // numbers of a work item
constexpr int64_t kPiece = 1 << 12;    // of a row of which some threads take one
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Float32 = ffi::Buffer<ffi::F32>;
using Float32Result = ffi::ResultBuffer<ffi::F32>;

// Never inlined: two copies of `run` could round differently.
template <typename Run>
__attribute__((noinline)) void run_all(int64_t first, int64_t end,
                                       const Run& run) {
  for (int64_t i = first; i < end; ++i) run(i);
}

// Calls run(i) for each of `count` items of `each` numbers.
template <typename Run>
void for_each(const Pool& pool, int64_t count, int64_t each, const Run& run) {
  if (count * each < kShared || pool.threads < 2) {
    return run_all(0, count, run);
  }
  const int64_t together = std::max<int64_t>(1, kItem / each);
  parallel_for(pool, (count + together - 1) / together, [&](int64_t item) {
    run_all(item * together, std::min(count, (item + 1) * together), run);
  });
}

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

// The sums over k of each(k) times column f of w KxF, for all f: k in turn.
template <typename Each>
inline void add_rows(const float* w, int64_t between, int64_t K, int64_t F,
                     const Each& each, float* y) {
  auto run = [&](auto vectors, int64_t f) {
    constexpr int V = vectors;
    Vector sums[V] = {};
    for (int64_t k = 0; k < K; ++k) {
      for (int i = 0; i < V; ++i) {
        Vector own = load(w + k * between + f + i * kWidth, F - f - i * kWidth);
        sums[i] += own * each(k);
      }
    }
    for (int i = 0; i < V; ++i) {
      store(y + f + i * kWidth, sums[i], F - f - i * kWidth);
    }
  };
  int64_t f = 0;
  for (; f + kSums * kWidth <= F; f += kSums * kWidth) {
    run(std::integral_constant<int, kSums>(), f);
  }
  for (; f < F; f += kWidth) run(std::integral_constant<int, 1>(), f);
}

ffi::Error axis_sums(ffi::ThreadPool threads, Float32 x, Float32Result y) {
  auto dims = x.dimensions();
  const int64_t N = dims[1], I = dims[2];
  const float* from = x.typed_data();
  float* to = y->typed_data();
  for_each(pool_of(threads), dims[0], N * I, [&](int64_t o) {
    const float* own = from + o * N * I;
    if (I > 1) {
      return add_rows(own, I, N, I, [](int64_t) { return 1.0f; }, to + o * I);
    }
    to[o] = sum(N, [&](int64_t n, int64_t left) { return load(own + n, left); });
  });
  return ffi::Error::Success();
}

// y = (x - mean) / sqrt(variance + epsilon) * scale + bias; uncentered, without
// the mean, which the variance then includes. scale and bias: SxN or empty, of
// the rows 0 to S - 1, S to 2 S - 1, ...
ffi::Error norm(ffi::ThreadPool threads, Float32 x, Float32 scale, Float32 bias,
                Float32Result y, float epsilon, bool centered) {
  const int64_t N = x.dimensions()[1];
  auto row_of = [&](const Float32& w, int64_t b) -> const float* {
    int64_t rows = w.element_count() / N;
    return rows ? w.typed_data() + b % rows * N : nullptr;
  };
  for_each(pool_of(threads), x.dimensions()[0], N, [&](int64_t b) {
    const float* from = x.typed_data() + b * N;
    float* to = y->typed_data() + b * N;
    float mean = 0;
    if (centered) {
      mean = sum(N, [&](int64_t n, int64_t left) {
        return load(from + n, left);
      }) / N;
    }
    float squares = sum(N, [&](int64_t n, int64_t left) {
      Vector own = load(from + n, left) - mean;
      if (left < kWidth) {  // beyond the row
        for (int64_t i = left; i < kWidth; ++i) own[i] = 0;
      }
      return own * own;
    });
    const float factor = 1 / std::sqrt(squares / N + epsilon);
    const float *a = row_of(scale, b), *c = row_of(bias, b);
    for (int64_t n = 0; n < N; n += kWidth) {
      Vector own = (load(from + n, N - n) - mean) * factor;
      if (a) own *= load(a + n, N - n);
      if (c) own += load(c + n, N - n);
      store(to + n, own, N - n);
    }
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

// The first of the largest; the last number if all are NaN.
ffi::Error argmax(ffi::ThreadPool threads, Float32 x,
                  ffi::ResultBuffer<ffi::S32> y) {
  const int64_t N = x.dimensions()[1];
  for_each(pool_of(threads), x.dimensions()[0], N, [&](int64_t b) {
    const float* from = x.typed_data() + b * N;
    const float most = largest(from, N);
    const float* at = std::find(from, from + N, most);
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
  const int64_t x_k = inner[2], w_k = inner[3], w_f = inner[4];
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
    float* to = y->typed_data() + item * F;
    if (w_f == 1 && F > 1) {
      auto each = [&](int64_t k) { return of_x[k * x_k]; };
      return add_rows(of_w, w_k, K, F, each, to);
    }
    for (int64_t f = 0; f < F; ++f) {
      const float* own = of_w + f * w_f;
      if (x_k == 1 && w_k == 1) {
        to[f] = sum(K, [&](int64_t k, int64_t left) {
          return load(of_x + k, left) * load(own + k, left);
        });
      } else {
        float total = 0;
        for (int64_t k = 0; k < K; ++k) total += of_x[k * x_k] * own[k * w_k];
        to[f] = total;
      }
    }
  });
  return ffi::Error::Success();
}

// The functions by their numbers in ops/fixed_order/rewriting.py.
enum Function : int64_t {
  kExp, kLog, kLog1p, kTanh, kLogistic, kExpm1, kErf, kSin, kCos, kSilu,
  kLog1pExp
};

// y = f(x) of each number, which takes a vector of its own at the end.
template <typename F>
void map(const Pool& pool, const Float32& x, Float32Result& y, const F& f) {
  const int64_t N = x.element_count();
  const float* from = x.typed_data();
  float* to = y->typed_data();
  for_each(pool, (N + kWidth - 1) / kWidth, kWidth, [&](int64_t i) {
    const int64_t n = i * kWidth;
    store(to + n, f(load(from + n, N - n)), N - n);
  });
}

template <float F(float)>
Vector each(Vector x) {
  for (int i = 0; i < kWidth; ++i) x[i] = F(x[i]);
  return x;
}

ffi::Error function(ffi::ThreadPool threads, Float32 x, Float32Result y,
                    int64_t name) {
  const Pool pool = pool_of(threads);
  auto run = [&](const auto& f) {
    map(pool, x, y, f);
    return ffi::Error::Success();
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
  return ffi::Error::InvalidArgument("name: unknown");
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_norm, norm,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Arg<Float32>()
                                  .Arg<Float32>()
                                  .Ret<Float32>()
                                  .Attr<float>("epsilon")
                                  .Attr<bool>("centered"));

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
