// Checks what the C++ library has an own form of for some processors, each
// against a loop in float64 or in whole numbers. Prints what is wrong.

#include <cstdio>
#include <random>

#include "functions.h"
#include "products.cc"

namespace rnn_jax {
namespace {

int wrong = 0;

void expect(bool holds, const char* what, double x, double y, double right) {
  if (holds || ++wrong > 20) return;
  std::printf("%s of %.9g: %.9g, not %.9g\n", what, x, y, right);
}

std::mt19937 random_bits(0);

int32_t any_of(int32_t least, int32_t most) {
  return std::uniform_int_distribution<int32_t>(least, most)(random_bits);
}

float normal() { return std::normal_distribution<float>()(random_bits); }

double power_of_two(int n) { return std::ldexp(1.0, n); }

float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The number of a format with some bits of exponent and of fraction, an infinity
// as if exponents went on.
double value(uint32_t bits, int exponent_bits, int fraction_bits) {
  int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  int fraction = bits & ((1 << fraction_bits) - 1);
  int bias = (1 << (exponent_bits - 1)) - 1;
  double size = exponent == 0
                    ? fraction * power_of_two(1 - bias - fraction_bits)
                    : (fraction + power_of_two(fraction_bits)) *
                          power_of_two(exponent - bias - fraction_bits);
  return bits >> (exponent_bits + fraction_bits) ? -size : size;
}

// Sums of all of int32's width, and of pairs that don't fill a Numbers.
template <int bits>
void exact_sums() {
  constexpr int kLeast = bits == 8 ? -128 : 0, kLargest = bits == 8 ? 127 : 15;
  for (int64_t K : {2, 4, 6, 32, 510, 512}) {
    for (int kind = 0; kind < 4; ++kind) {  // 0: any numbers; 1 to 3: extremes
      const int32_t own = kind == 1 ? kLargest : kLeast;
      const int32_t most = kind == 2 ? -kMost : kMost;
      std::vector<uint8_t> packed(K * kColumns + 64, 0xa5);
      std::vector<int16_t> x(K + 2, kMost);
      std::vector<int64_t> right(kColumns, 0);
      for (int64_t k = 0; k < K; ++k) {
        x[k] = kind ? most : any_of(-kMost, kMost);
        for (int c = 0; c < kColumns; ++c) {
          const int32_t n = kind ? own : any_of(kLeast, kLargest);
          right[c] += int64_t{n} * x[k];
          if (bits == 8) {
            packed[k / 2 * 2 * kColumns + 2 * c + k % 2] = n;
          } else {
            uint8_t& both = packed[k / 2 * kColumns + c % 8 * 2 + k % 2];
            both = c < 8 ? (both & 0xf0) | n : (both & 15) | n << 4;
          }
        }
      }
      Sums sums{};
      for (int64_t k = 0; k < K; k += kDepth) {
        const uint8_t* at = packed.data() + k * kColumns * bits / 8;
        if constexpr (bits == 8) {
          add(sums, unpack_int8(reinterpret_cast<const int8_t*>(at), (K - k) / 2),
              &x[k]);
        } else if (K % kDepth == 0) {  // blocks have whole ones
          add(sums, unpack<4>(at), &x[k]);
        }
      }
      if (bits == 4 && K % kDepth) continue;
      for (int c = 0; c < kColumns; ++c) {
        const int32_t y = total(sums, c / kWidth)[c % kWidth];
        expect(y == right[c], bits == 8 ? "sum in 8 bits" : "sum in 4 bits", K,
               y, right[c]);
      }
    }
  }
}

void scales() {
  for (uint32_t first = 0; first < 0x10000; first += kColumns) {
    uint16_t halves[kColumns];
    for (int c = 0; c < kColumns; ++c) halves[c] = first + c;
    const Columns columns = unpack_scales(halves);
    for (int c = 0; c < kColumns; ++c) {
      const float y = columns.part[c / kWidth][c % kWidth];
      const uint32_t size = halves[c] & 0x7fff;
      double right = value(halves[c], 5, 10);
      if (size == 0x7c00) right = halves[c] >> 15 ? -INFINITY : INFINITY;
      expect(size > 0x7c00 ? y != y : y == right, "float16", halves[c], y,
             right);
    }
  }
}

// The nearer of two neighbours, of two equally near ones the even.
uint16_t nearest(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint16_t down = bits >> 16, up = down + 1;
  if (x != x) return down | 0x40;
  if (std::isinf(x)) return down;
  if (std::fabs(x) < power_of_two(-126)) return down & 0x8000;
  const double below = std::fabs(x - value(down, 8, 7));
  const double above = std::fabs(x - value(up, 8, 7));
  if (below == above) return down % 2 ? up : down;
  return below < above ? down : up;
}

void bfloat16() {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      float x[kWidth];
      for (int i = 0; i < kWidth; ++i) x[i] = as_float(upper << 16 | lower);
      BFloat16 y[kWidth], plain;
      store(y, load(x));
      assign(plain, x[0]);
      const uint16_t right = nearest(x[0]);
      for (int i = 0; i < kWidth; ++i) {
        expect(y[i].bits == right, "bfloat16", x[0], y[i].bits, right);
      }
      expect(plain.bits == right, "one bfloat16", x[0], plain.bits, right);
      const float back = load(y)[kWidth - 1];
      expect(back == to_float(plain) || x[0] != x[0], "float of bfloat16", x[0],
             back, to_float(plain));
    }
  }
}

void sums_of_vectors() {
  float x[kWidth * kWidth];
  for (float& one : x) one = normal();
  const Vector y = sums(x);
  for (int i = 0; i < kWidth; ++i) {
    double right = 0;
    for (int k = 0; k < kWidth; ++k) right += x[i * kWidth + k];
    expect(std::fabs(y[i] - right) < 1e-5, "sum of a vector", i, y[i], right);
  }
}

template <typename F, typename Right>
void function(const char* name, double least, double most, const F& f,
              const Right& right) {
  for (int i = 0; i <= 10000; ++i) {
    const float x = static_cast<float>(least + (most - least) * i / 10000);
    const double want = right(double{x});
    const float y = f(broadcast(x))[kWidth - 1];
    expect(std::fabs(y - want) <= 5e-7 * std::fabs(want) + 1e-37, name, x, y,
           want);
  }
}

void functions() {
  function("exp", -87, 88, [](Vector x) { return exponential(x); },
           [](double x) { return std::exp(x); });
  function("sigmoid", -80, 80, [](Vector x) { return sigmoid(x); },
           [](double x) { return 1 / (1 + std::exp(-x)); });
  function("tanh", -10, 10, [](Vector x) { return tanh(x); },
           [](double x) { return std::tanh(x); });
  function("log", 1e-3, 1e3, [](Vector x) { return logarithm(x); },
           [](double x) { return std::log(x); });
  function("log1p", -0.9, 20, [](Vector x) { return logarithm_1p(x); },
           [](double x) { return std::log1p(x); });
}

// A product's numbers, and that a row's bits are the same alone.
template <typename Run>
void product(const char* name, const Shape& shape, const std::vector<float>& x,
             const std::vector<double>& w, double tolerance, const Run& run) {
  const int64_t K = shape.K, F = shape.F;
  std::vector<float> y(shape.rows * F), alone(F);
  run(shape, x.data(), y.data());
  for (int64_t row = 0; row < shape.rows; ++row) {
    run(Shape{1, K, F}, x.data() + row * K, alone.data());
    for (int64_t f = 0; f < F; ++f) {
      double right = 0, size = 0;
      for (int64_t k = 0; k < K; ++k) {
        right += x[row * K + k] * w[k * F + f];
        size += std::fabs(x[row * K + k] * w[k * F + f]);
      }
      const float own = y[row * F + f];
      expect(std::fabs(own - right) <= tolerance * size, name, K, own, right);
      expect(own == alone[f], "the same row alone", K, alone[f], own);
    }
  }
}

// Whole numbers as weights, which any format holds: -8 to 7.
void products() {
  const Pool pool{1, nullptr};
  for (int64_t rows : {1, 2, 3, 7, 25}) {
    for (int64_t K : {1, 31, 33, 66, 515}) {
      for (int64_t F : {1, 16, 70}) {
        const Shape shape{rows, K, F};
        const int64_t blocks = (K + kBlock - 1) / kBlock, pairs = (K + 1) / 2;
        const int64_t columns = shape.panels() * kColumns;
        std::vector<float> x(rows * K), floats(K * columns);
        std::vector<double> w(K * F);
        std::vector<BFloat16> halves(K * columns);
        std::vector<int8_t> bytes(pairs * 2 * columns);
        std::vector<uint8_t> block_bytes(blocks * kBlock * columns);
        std::vector<uint8_t> nibbles(block_bytes.size() / 2, 0x88);
        const std::vector<float> ones(columns, 1);
        const std::vector<uint16_t> half_ones(blocks * columns, 0x3c00);
        for (float& one : x) one = normal();
        for (int64_t k = 0; k < K; ++k) {
          for (int64_t f = 0; f < F; ++f) {
            const int32_t n = any_of(-8, 7);
            const int64_t panel = f / kColumns, c = f % kColumns;
            w[k * F + f] = n;
            const int64_t at = (panel * K + k) * kColumns + c;
            floats[at] = n;
            assign(halves[at], n);
            auto pair = [&](int64_t of_panel) {
              return ((panel * of_panel + k / 2) * kColumns + c) * 2 + k % 2;
            };
            bytes[pair(pairs)] = n;
            block_bytes[pair(blocks * kBlock / 2)] = n;
            uint8_t& both =
                nibbles[(panel * blocks * kBlock / 2 + k / 2) * kColumns +
                        c % 8 * 2 + k % 2];
            both = c < 8 ? (both & 0xf0) | (n + 8) : (both & 15) | (n + 8) << 4;
          }
        }
        auto floating = [&](const auto* of) {
          return [of, pool](const Shape& s, const float* from, float* y) {
            multiply_floats(pool, s, from, of, y);
          };
        };
        auto rounded = [&](auto of) {
          return [of, pool](const Shape& s, const float* from, float* y) {
            multiply_rounded(pool, s, from, of, y);
          };
        };
        product("float32", shape, x, w, 1e-5, floating(floats.data()));
        product("bfloat16 weights", shape, x, w, 1e-5, floating(halves.data()));
        product("int8", shape, x, w, 1e-2,
                rounded(Int8{bytes.data(), ones.data(), pairs}));
        product("int8_blocks", shape, x, w, 1e-2,
                rounded(Blocks<8>{block_bytes.data(), half_ones.data(), blocks}));
        product("int4", shape, x, w, 1e-2,
                rounded(Blocks<4>{nibbles.data(), half_ones.data(), blocks}));
      }
    }
  }
}

}  // namespace
}  // namespace rnn_jax

int main() {
  rnn_jax::exact_sums<8>();
  rnn_jax::exact_sums<4>();
  rnn_jax::scales();
  rnn_jax::bfloat16();
  rnn_jax::sums_of_vectors();
  rnn_jax::functions();
  rnn_jax::products();
  std::printf("vectors of %d numbers, %d rows at once: %d wrong\n", rnn_jax::kWidth,
              rnn_jax::kDepth, rnn_jax::wrong);
  return rnn_jax::wrong != 0;
}
