// y = x W of few rows, with weights that stream from memory: y BxF, x BxK.
//
// W is packed in panels of 16 columns, which lie one after another as they are
// read (ops/products/native.py packs them). Each column's sum has an order of
// its own, whatever B and the threads are: a row's bits are the same alone and
// among others.
//
// In float32 and bfloat16, k = 0, 1, ... in turn, in float32. In 8 and 4 bits,
// x is rounded to 16 bits with a scale for each row, and sums of a block are
// exact integers; the blocks' sums are added in float32 in turn.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "bfloat16.h"
#include "pairs.h"
#include "xla.h"

namespace rnn_jax {
namespace {

constexpr int64_t kAhead = 4096;         // bytes: prefetchers stop at pages
constexpr int64_t kInline = 1 << 17;     // products for one thread
constexpr int64_t kItem = 64 << 10;      // bytes of weights of a work item
constexpr int64_t kTogether = 4;         // panels that one row meets at once
constexpr int64_t kBlock = 32;           // rows of W that share a scale
constexpr int64_t kExact = 512;          // products of a sum in int32
constexpr int kMost = 32767;             // of x in 16 bits
constexpr int kFew = 4;                  // rows for which unpacking counts
#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kRows = 24 / kParts;  // sums in registers, of 32
#else
constexpr int kRows = 12 / kParts;  // of 16
#endif
constexpr int kExactRows = kRows / kSumsOfPart;

inline void prefetch(const void* p) {
  __builtin_prefetch(static_cast<const char*>(p) + kAhead);
}

struct Shape {
  int64_t rows, K, F;
  int64_t panels() const { return (F + kColumns - 1) / kColumns; }
};

// Calls run(first panel, last) for parts of W, on several threads if it is
// large: they take some microseconds to start. `bytes`: of a panel.
template <typename Run>
void by_panels(const Pool& pool, const Shape& shape, const void* w,
               int64_t bytes, const Run& run) {
  const int64_t panels = shape.panels();
  if (shape.rows * shape.K * shape.F < kInline || pool.threads < 2) {
    return run(0, panels);
  }
  int64_t each = std::max<int64_t>(1, kItem / bytes / kTogether) * kTogether;
  each = std::min(each, std::max<int64_t>(1, panels / (4 * pool.threads)));
  auto take = [&](int64_t item) {
    run(item * each, std::min(panels, (item + 1) * each));
  };
  const Reads reads{static_cast<const char*>(w), panels * bytes};
  parallel_for(pool, (panels + each - 1) / each, take, reads);
}

// Writes a row's columns of a panel.
inline void put(float* y, const Shape& shape, int64_t row, int64_t panel,
                const Columns& sums) {
  y += row * shape.F + panel * kColumns;
  int64_t left = shape.F - panel * kColumns;
  for (int i = 0; i < kParts && left > 0; ++i, left -= kWidth) {
    store(y + i * kWidth, sums.part[i], left);
  }
}

// Calls block(N rows, a panel) while there are N rows left, unless N > most.
template <int most, int N, typename Block>
inline void blocks_of(int64_t rows, int64_t& row, int64_t panel,
                      const Block& block) {
  if constexpr (N <= most) {
    for (; row + N <= rows; row += N) {
      block(std::integral_constant<int, N>(), std::integral_constant<int, 1>(),
            row, panel);
    }
  }
}

// Calls block(R rows, P panels) until all rows have met all panels; one row
// meets several panels at once, as one sum alone would wait for its latency.
template <int most, typename Block>
void each_block(int64_t rows, int64_t first, int64_t last, const Block& block) {
  if (rows == 1) {
    constexpr int P = std::min<int>(kTogether, most);
    for (; first + P <= last; first += P) {
      block(std::integral_constant<int, 1>(), std::integral_constant<int, P>(),
            0, first);
    }
  }
  for (int64_t panel = first; panel < last; ++panel) {
    int64_t row = 0;
    blocks_of<most, most>(rows, row, panel, block);
    blocks_of<most, 16>(rows, row, panel, block);
    blocks_of<most, 8>(rows, row, panel, block);
    blocks_of<most, 4>(rows, row, panel, block);
    blocks_of<most, 2>(rows, row, panel, block);
    blocks_of<most, 1>(rows, row, panel, block);
  }
}

// R rows by P panels. Each sum adds k = 0, 1, ... in turn.
template <int R, int P, typename T>
inline void multiply_block(const Shape& shape, const float* x, const T* w,
                           float* y, int64_t row, int64_t panel) {
  const int64_t K = shape.K, size = K * kColumns;
  Columns sums[R][P] = {};
  x += row * K;
  w += panel * size;
  for (int64_t k = 0; k < K; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const T* at = w + p * size + k * kColumns;
      prefetch(at);
#pragma GCC unroll 4
      for (int i = 0; i < kParts; ++i) {
        Vector numbers = load(at + i * kWidth);
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r) sums[r][p].part[i] += numbers * x[r * K + k];
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) put(y, shape, row + r, panel + p, sums[r][p]);
  }
}

template <typename T>
void multiply_floats(const Pool& pool, const Shape& shape, const float* x,
                     const T* w, float* y) {
  auto block = [&](auto R, auto P, int64_t row, int64_t panel) {
    multiply_block<R(), P()>(shape, x, w, y, row, panel);
  };
  by_panels(pool, shape, w, shape.K * kColumns * sizeof(T),
            [&](int64_t first, int64_t last) {
              each_block<kRows>(shape.rows, first, last, block);
            });
}

// Rows of x in 16 bits, filled up with zeros to whole blocks.
struct Rounded {
  int64_t K;
  std::vector<int16_t> numbers;  // BxK
  std::vector<float> scales;     // of rows; NaN where one isn't finite
  std::vector<int32_t> totals;   // of blocks

  Rounded(const float* x, const Shape& shape)
      : K((shape.K + kBlock - 1) / kBlock * kBlock),
        numbers(shape.rows * K),
        scales(shape.rows),
        totals(shape.rows * K / kBlock) {
    for (int64_t row = 0; row < shape.rows; ++row, x += shape.K) {
      round_row(x, shape.K, &numbers[row * K], scales[row]);
    }
    const int16_t* from = numbers.data();
    for (int32_t& total : totals) {
      for (int i = 0; i < kBlock; ++i) total += from[i];
      from += kBlock;
    }
  }

 private:
  static void round_row(const float* x, int64_t n, int16_t* to, float& scale) {
    const int32_t kSize = 0x7fffffff, kInfinite = 0x7f800000;
    Integers most{};  // sizes of floats are ordered as integers
    for (int64_t k = 0; k < n; k += kWidth) {
      Integers size = (Integers)load(x + k, n - k) & kSize;
      Integers more = size > most;
      most = (size & more) | (most & ~more);
    }
    int32_t largest = 0;
    for (int i = 0; i < kWidth; ++i) largest = std::max(largest, most[i]);
    float size;
    std::memcpy(&size, &largest, sizeof(size));
    size = std::max(size, 1e-30f);
    scale = size / kMost;
    if (largest >= kInfinite) {
      scale = std::numeric_limits<float>::quiet_NaN();
      return;  // all numbers are 0
    }
    const float inverse = kMost / size;
    const float round = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction
    for (int64_t k = 0; k < n; k += kWidth) {
      Vector rounded = load(x + k, n - k) * inverse + round;
      Integers numbers = (Integers)rounded - 0x4B400000;
      Halves halves = __builtin_convertvector(numbers, Halves);
      std::memcpy(to + k, &halves, sizeof(halves));  // zeros after n
    }
  }
};

// A scale for each column.
struct Int8 {
  const int8_t* numbers;  // panels x K / 2 x 16 x 2
  const float* scales;    // panels x 16
  int64_t pairs;          // of a panel, K / 2

  int64_t bytes() const { return pairs * 2 * kColumns; }

  template <int R>
  void run(const Rounded& x, int64_t row, int64_t panel, Columns* sums) const {
    const int8_t* at = numbers + panel * bytes();
    Columns one;
    for (Vector& part : one.part) part = broadcast(1.0f);
    for (int64_t first = 0; first < pairs; first += kExact / 2) {
      const int64_t last = std::min(pairs, first + kExact / 2);
      const int16_t* from = x.numbers.data() + row * x.K;
      // Integers may be added in any order, and a sum waits for its latency.
      constexpr int kTurns = std::max(1, std::min(4, kExactRows) / R);
      constexpr int kStep = kDepth / 2;
      Sums exact[kTurns][R] = {};
      auto add_some = [&](Sums* to, int64_t k) {
        prefetch(at);
        Numbers n = unpack_int8(at, last - k);
        at += kDepth * kColumns;
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r) add(to[r], n, from + r * x.K + 2 * k);
      };
      int64_t k = first;
      for (; k + kTurns * kStep <= last; k += kTurns * kStep) {
#pragma GCC unroll 4
        for (int turn = 0; turn < kTurns; ++turn) {
          add_some(exact[turn], k + turn * kStep);
        }
      }
      for (; k < last; k += kStep) add_some(exact[0], k);
      for (int r = 0; r < R; ++r) {
        for (int turn = 1; turn < kTurns; ++turn) {
          add(exact[0][r], exact[turn][r]);
        }
        add_scaled(sums[r], exact[0][r], one);
      }
    }
    Columns own;
    for (int i = 0; i < kParts; ++i) {
      own.part[i] = load(scales + panel * kColumns + i * kWidth);
      for (int r = 0; r < R; ++r) sums[r].part[i] *= own.part[i];
    }
  }
};

// A scale for each column and block; 8 or 4 bits.
template <int bits>
struct Blocks {
  const uint8_t* numbers;  // panels x blocks x 16 pairs x 16 x 2, or half
  const uint16_t* scales;  // panels x blocks x 16, float16
  int64_t blocks;          // of a panel

  static constexpr int64_t kPair = kColumns * 2 * bits / 8;  // bytes
  int64_t bytes() const { return blocks * kBlock / 2 * kPair; }

  template <int R>
  void run(const Rounded& x, int64_t row, int64_t panel, Columns* sums) const {
    const uint8_t* at = numbers + panel * bytes();
    const uint16_t* own = scales + panel * blocks * kColumns;
    const int16_t* from = x.numbers.data() + row * x.K;
    const int32_t* totals = x.totals.data() + row * blocks;
    for (int64_t b = 0; b < blocks; ++b, own += kColumns, from += kBlock) {
      Sums exact[R];
      for (int r = 0; r < R; ++r) exact[r] = begin(totals[r * blocks + b]);
      add_block(exact, at, from, x.K);
      at += kBlock / 2 * kPair;
      prefetch(own);
      Columns scale = unpack_scales(own);
      for (int r = 0; r < R; ++r) add_scaled(sums[r], exact[r], scale);
    }
  }

 private:
  template <int R>
  static void add_block(Sums (&sums)[R], const uint8_t* at, const int16_t* x,
                        int64_t between) {
#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
    if constexpr (bits == 4 && R <= kFew) {
      PairsOfTwo own[R];
#pragma GCC unroll 8
      for (int64_t k = 0; k < kBlock; k += 4, at += 2 * kPair) {
        if (k % 8 == 0) prefetch(at);
        add_two<R>(own, at, x + k, between);
      }
      for (int r = 0; r < R; ++r) sums[r] = join(own[r], sums[r]);
      return;
    }
#endif
    for (int64_t k = 0; k < kBlock; k += kDepth, at += kDepth / 2 * kPair) {
      if (k % (64 / kPair * 2) == 0) prefetch(at);
      auto n = unpack<bits>(at);
#pragma GCC unroll 24
      for (int r = 0; r < R; ++r) add(sums[r], n, x + r * between + k);
    }
  }

  // Numbers of 4 bits are stored 8 too large: sum (n - 8) x = sum n x - 8 sum x
  static Sums begin(int32_t total) {
    Sums sums{};
    if (bits == 8) return sums;
    for (Integers& part : sums.part) part = -8 * total + Integers{};
    return sums;
  }
};

template <typename Weights>
void multiply_rounded(const Pool& pool, const Shape& shape, const float* x,
                      const Weights& w, float* y) {
  Rounded rounded(x, shape);
  auto block = [&](auto R, auto P, int64_t row, int64_t panel) {
    for (int p = 0; p < P(); ++p) {  // integer sums wait for nothing
      Columns sums[R()] = {};
      w.template run<R()>(rounded, row, panel + p, sums);
      for (int r = 0; r < R(); ++r) {
        for (Vector& part : sums[r].part) part *= rounded.scales[row + r];
        put(y, shape, row + r, panel + p, sums[r]);
      }
    }
  };
  by_panels(pool, shape, w.numbers, w.bytes(), [&](int64_t first, int64_t last) {
    each_block<kExactRows>(shape.rows, first, last, block);
  });
}

using Float32 = ffi::Buffer<ffi::F32>;

Shape shape_of(const Float32& x, const Float32& y) {
  return {x.dimensions()[0], x.dimensions()[1], y.dimensions()[1]};
}

ffi::Error floats(ffi::ThreadPool threads, Float32 x, ffi::AnyBuffer w,
                  ffi::ResultBuffer<ffi::F32> y) {
  return with_format(w.element_type(), [&](auto format) {
    using T = decltype(format);
    multiply_floats(pool_of(threads), shape_of(x, *y), x.typed_data(),
                    static_cast<const T*>(w.untyped_data()), y->typed_data());
  });
}

ffi::Error int8(ffi::ThreadPool threads, Float32 x, ffi::Buffer<ffi::S8> w,
                Float32 scales, ffi::ResultBuffer<ffi::F32> y) {
  Int8 weights{w.typed_data(), scales.typed_data(), w.dimensions()[1]};
  multiply_rounded(pool_of(threads), shape_of(x, *y), x.typed_data(), weights,
                   y->typed_data());
  return ffi::Error::Success();
}

// Of 8 bits, numbers come in pairs on an axis of their own.
ffi::Error blocks(ffi::ThreadPool threads, Float32 x, ffi::Buffer<ffi::U8> w,
                  ffi::Buffer<ffi::F16> scales,
                  ffi::ResultBuffer<ffi::F32> y) {
  const uint8_t* numbers = w.typed_data();
  auto own = static_cast<const uint16_t*>(scales.untyped_data());
  auto run = [&](const auto& weights) {
    multiply_rounded(pool_of(threads), shape_of(x, *y), x.typed_data(), weights,
                     y->typed_data());
  };
  auto dims = w.dimensions();
  if (dims.size() == 5) {
    run(Blocks<8>{numbers, own, dims[1]});
  } else {
    run(Blocks<4>{numbers, own, dims[1]});
  }
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(product_floats, floats,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<Float32>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(product_int8, int8,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Arg<ffi::Buffer<ffi::S8>>()
                                  .Arg<Float32>()
                                  .Ret<Float32>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(product_blocks, blocks,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Float32>()
                                  .Arg<ffi::Buffer<ffi::U8>>()
                                  .Arg<ffi::Buffer<ffi::F16>>()
                                  .Ret<Float32>());

}  // namespace rnn_jax
