// Programs of instructions that run for each row, written by
// ops/fixed_order/row_programs.py, whose docstring has their form.
//
// An instruction makes each number with one rounding, and knows nothing of
// other rows: a row's bits are the same in any batch and on any number of
// threads. A thread has its own memory for what instructions make. It runs each
// for some rows, which then read weights once.

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "activations.h"
#include "rows.h"
#include "scratch.h"
#include "xla.h"

namespace rnn_jax {
namespace {

using Numbers = ffi::Span<const int64_t>;

// By their numbers in ops/fixed_order/row_programs.py.
enum Operation : int64_t {
  kCopy, kAdd, kSub, kMul, kDiv, kMax, kMin, kEqual, kUnequal, kLess,
  kLessOrEqual, kGreater, kGreaterOrEqual, kSelect, kSqrt, kAbs, kSum,
  kLargest, kProduct, kFunctions
};

// What an instruction reads or writes: its first number, and by how many
// numbers neighbours along each axis are apart.
struct Operand {
  float* at;
  const int64_t* apart;
};

// Up to kWidth numbers of a line, from the i-th on.
inline Vector get(const Operand& x, int64_t i, int64_t left) {
  const int64_t apart = *x.apart;
  if (apart == 1) return load(x.at + i, left);
  if (apart == 0) return broadcast(*x.at);
  Vector y{};
  for (int64_t k = 0; k < std::min<int64_t>(left, kWidth); ++k) {
    y[k] = x.at[(i + k) * apart];
  }
  return y;
}

inline void put(const Operand& y, int64_t i, int64_t left, Vector x) {
  const int64_t apart = *y.apart;
  if (apart == 1) return store(y.at + i, x, left);
  for (int64_t k = 0; k < std::min<int64_t>(left, kWidth); ++k) {
    y.at[(i + k) * apart] = x[k];
  }
}

// As many whole vectors of y = f(x_1, ..., x_N) as a line has, if y's numbers
// are next to each other, and those of each x are, too, or are all one number.
// Returns how many numbers these are.
template <size_t... n, typename F>
int64_t whole_vectors(int64_t size,
                      const std::array<Operand, sizeof...(n) + 1>& of,
                      const F& f, std::index_sequence<n...>) {
  // Variables of its own: to the compiler, a store may change what `of` has.
  float* const y = of[0].at;
  const float* const x[] = {of[n + 1].at...};
  const bool is_one[] = {*of[n + 1].apart == 0 ...};
  const bool is_line = *of[0].apart == 1 &&
                       ((is_one[n] || *of[n + 1].apart == 1) && ...);
  if (!is_line || size < kWidth) return 0;
  const Vector one[] = {broadcast(*x[n])...};
  int64_t i = 0;
  if ((is_one[n] || ...)) {
    for (; i + kWidth <= size; i += kWidth) {
      store(y + i, f(is_one[n] ? one[n] : load(x[n] + i)...));
    }
  }
  for (; i + kWidth <= size; i += kWidth) store(y + i, f(load(x[n] + i)...));
  return i;
}

// y = f(x_1, ..., x_N) along the last axis, for all others.
template <size_t... n, typename F>
void each_number(int64_t axes, const int64_t* sizes,
                 std::array<Operand, sizeof...(n) + 1> of, const F& f,
                 std::index_sequence<n...> indices) {
  if (axes == 1) {
    int64_t i = whole_vectors(*sizes, of, f, indices);
    for (; i < *sizes; i += kWidth) {
      const int64_t left = *sizes - i;
      put(of[0], i, left, f(get(of[n + 1], i, left)...));
    }
    return;
  }
  for (int64_t i = 0; i < *sizes; ++i) {
    auto inner = of;
    for (Operand& x : inner) ++x.apart;
    each_number(axes - 1, sizes + 1, inner, f, indices);
    for (Operand& x : of) x.at += *x.apart;
  }
}

template <int N, typename F>
void map(int64_t axes, const int64_t* sizes, const Operand* given, const F& f) {
  std::array<Operand, N + 1> of;
  std::copy(given, given + N + 1, of.begin());
  each_number(axes, sizes, of, f, std::make_index_sequence<N>());
}

inline Vector mask(Integers where) {
  return select(where, broadcast(1.0f), Vector{});
}

// The largest of a and b, NaN if one is.
inline Vector larger(Vector a, Vector b) {
  return select((a > b) | (a != a), a, b);
}

// y[o, i] = max_n x[o, n, i]; sizes O, N, I.
void find_largest(const int64_t* sizes, const float* x, float* y) {
  const int64_t N = sizes[1], I = sizes[2];
  for (int64_t o = 0; o < sizes[0]; ++o, x += N * I, y += I) {
    for (int64_t i = 0; i < I; ++i) {
      float most = x[i];
      for (int64_t n = 1; n < N; ++n) {
        const float own = x[n * I + i];
        if (!(most >= own) && most == most) most = own;
      }
      y[i] = most;
    }
  }
}

// y[..., f] = sum_k x[..., k] w[..., k, f] of some rows; the last two axes are k
// and f.
void multiply(const Rows& rows, int64_t axes, const int64_t* sizes, Operand y,
              Operand x, Operand w) {
  if (axes == 2) {
    return multiply_rows(rows, x.at, x.apart[0], w.at, w.apart[0], w.apart[1],
                         sizes[0], sizes[1], y.at);
  }
  for (int64_t i = 0; i < *sizes; ++i) {
    multiply(rows, axes - 1, sizes + 1, {y.at, y.apart + 1},
             {x.at, x.apart + 1}, {w.at, w.apart + 1});
    for (Operand* one : {&y, &x, &w}) one->at += *one->apart;
  }
}

// Runs an instruction. False: there is no such operation.
bool run_one(int64_t operation, int64_t axes, const int64_t* sizes,
             const Operand* of) {
  auto two = [&](const auto& f) {
    map<2>(axes, sizes, of, f);
    return true;
  };
  auto one = [&](const auto& f) {
    map<1>(axes, sizes, of, f);
    return true;
  };
  using V = Vector;
  switch (operation) {
    case kCopy: return one([](V a) { return a; });
    case kAdd: return two([](V a, V b) { return a + b; });
    case kSub: return two([](V a, V b) { return a - b; });
    case kMul: return two([](V a, V b) { return a * b; });
    case kDiv: return two([](V a, V b) { return a / b; });
    case kMax: return two([](V a, V b) { return larger(a, b); });
    case kMin: return two([](V a, V b) { return -larger(-a, -b); });
    case kEqual: return two([](V a, V b) { return mask(a == b); });
    case kUnequal: return two([](V a, V b) { return mask(a != b); });
    case kLess: return two([](V a, V b) { return mask(a < b); });
    case kLessOrEqual: return two([](V a, V b) { return mask(a <= b); });
    case kGreater: return two([](V a, V b) { return mask(a > b); });
    case kGreaterOrEqual: return two([](V a, V b) { return mask(a >= b); });
    case kSelect:
      map<3>(axes, sizes, of, [](V where, V no, V yes) {
        return select(where != 0.0f, yes, no);
      });
      return true;
    case kSqrt:
      return one([](V a) {
        for (int i = 0; i < kWidth; ++i) a[i] = std::sqrt(a[i]);
        return a;
      });
    case kAbs: return one([](V a) { return (V)((Integers)a & 0x7fffffff); });
    case kSum:
      for (int64_t o = 0; o < sizes[0]; ++o) {
        add_up(of[1].at + o * sizes[1] * sizes[2], sizes[1], sizes[2],
               of[0].at + o * sizes[2]);
      }
      return true;
    case kLargest: return find_largest(sizes, of[1].at, of[0].at), true;
    case kProduct:
      multiply({1}, axes, sizes, of[0], of[1], of[2]);
      return true;
    default:
      return apply_function(operation - kFunctions, of[1].at, sizes[0],
                            of[0].at);
  }
}

constexpr int64_t kMostOperands = 4;

// The arrays of a call: constants, a thread's memory, inputs and results.
using Arrays = std::vector<float*>;
enum Array : int64_t { kConstants, kMemory, kFirstInput };

// Runs each instruction for some rows, the `row`-th and those after it, with
// `size` floats of `memory` each. False: one isn't known.
bool run_rows(Numbers code, const Arrays& arrays, float* memory, int64_t size,
              int64_t row, int64_t count) {
  const int64_t* at = code.begin();
  while (at < code.end()) {
    const int64_t operation = at[0], axes = at[1], of = at[2];
    const int64_t* sizes = at + 3;
    at = sizes + axes;
    Operand operands[kMostOperands];
    int64_t by_row[kMostOperands];
    for (int64_t i = 0; i < of; ++i, at += 3 + axes) {
      const bool own = at[0] == kMemory;
      by_row[i] = own ? size : at[2];
      float* first = own ? memory : arrays[at[0]] + row * at[2];
      operands[i] = {first + at[1], at + 3};
    }
    if (operation == kProduct && by_row[2] == 0) {
      multiply({count, by_row[1], by_row[0]}, axes, sizes, operands[0],
               operands[1], operands[2]);
      continue;
    }
    for (int64_t r = 0; r < count; ++r) {
      if (!run_one(operation, axes, sizes, operands)) return false;
      for (int64_t i = 0; i < of; ++i) operands[i].at += by_row[i];
    }
  }
  return true;
}

ffi::Error program(ffi::ThreadPool threads, ffi::RemainingArgs inputs,
                   ffi::RemainingRets results, Numbers code, Numbers constants,
                   int64_t memory, int64_t rows, int64_t work,
                   int64_t together) {
  std::vector<float> numbers;
  for (int64_t bits : constants) {
    const int32_t own = static_cast<int32_t>(bits);
    std::memcpy(&numbers.emplace_back(), &own, sizeof(own));
  }
  Arrays arrays = {numbers.data(), nullptr};
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto x = inputs.get<ffi::AnyBuffer>(i);
    if (x.has_error()) return x.error();
    arrays.push_back(static_cast<float*>(x->untyped_data()));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    auto y = results.get<ffi::AnyBuffer>(i);
    if (y.has_error()) return y.error();
    arrays.push_back(static_cast<float*>((*y)->untyped_data()));
  }
  std::atomic<bool> known{true};
  const Pool pool = pool_of(threads);
  if (rows < together * pool.threads) together = 1;
  const int64_t items = (rows + together - 1) / together;
  for_each(pool, items, together * work, [&](int64_t item) {
    const int64_t row = item * together;
    if (!run_rows(code, arrays, scratch(together * memory), memory, row,
                  std::min(together, rows - row))) {
      known = false;
    }
  });
  if (!known) return ffi::Error::InvalidArgument("code: unknown operation");
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(row_program, program,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<Numbers>("code")
                                  .Attr<Numbers>("constants")
                                  .Attr<int64_t>("memory")
                                  .Attr<int64_t>("rows")
                                  .Attr<int64_t>("work")
                                  .Attr<int64_t>("together"));

}  // namespace rnn_jax
