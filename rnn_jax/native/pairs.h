// Products of 16-bit numbers with packed ones of 8 or 4 bits: exact sums.
//
// A panel has 16 columns. Its numbers come in pairs, those of rows k and k + 1:
// Numbers holds such a pair of each column, or more on some processors (kDepth),
// Sums one int32 of each column.
#ifndef RNN_JAX_NATIVE_PAIRS_H_
#define RNN_JAX_NATIVE_PAIRS_H_

#include "activations.h"
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(RNN_JAX_NEON)
#include "pairs_neon.h"
#endif

namespace rnn_jax {

constexpr int kColumns = 16;                // of a panel
constexpr int kParts = kColumns / kWidth;  // vectors of a panel's columns

struct Columns {
  Vector part[kParts];
};

#if !defined(RNN_JAX_NEON)

constexpr int kDepth = 2;       // rows whose numbers Numbers holds
constexpr int kSumsOfPart = 1;  // vectors of sums, for a vector of columns

typedef int16_t Shorts __attribute__((vector_size(4 * kWidth)));
typedef int8_t Bytes __attribute__((vector_size(2 * kWidth)));
typedef uint8_t Nibbles __attribute__((vector_size(16)));
typedef uint16_t Wide __attribute__((vector_size(32)));

struct Numbers {
  Shorts part[kParts];
};
struct Sums {
  Integers part[kParts];
};
inline Integers total(const Sums& sums, int i) { return sums.part[i]; }

// By instructions: of __builtin_convertvector, GCC makes two of half the width.
inline Shorts widen(Bytes bytes) {
#if defined(__AVX512BW__)
  return (Shorts)_mm512_cvtepi8_epi16((__m256i)bytes);
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return (Shorts)_mm256_cvtepi8_epi16((__m128i)bytes);
#else
  return __builtin_convertvector(bytes, Shorts);
#endif
}

// 32 numbers of 8 bits: column 0's pair, column 1's, ... `pairs` of each column
// follow, of which at most kDepth / 2 are read.
inline Numbers unpack_int8(const int8_t* p, int64_t = kDepth / 2) {
  Numbers n;
  for (int i = 0; i < kParts; ++i) {
    Bytes bytes;
    std::memcpy(&bytes, p + i * sizeof(Bytes), sizeof(Bytes));
    n.part[i] = widen(bytes);
  }
  return n;
}

// 32 numbers from 0 to 15: those of columns 0 to 7 in the lower halves of 16
// bytes, those of columns 8 to 15 in the upper ones.
inline Numbers unpack_int4(const uint8_t* p) {
  Nibbles nibbles;
  std::memcpy(&nibbles, p, sizeof(nibbles));
#if defined(__AVX2__)
  Wide wide = (Wide)_mm256_cvtepu8_epi16((__m128i)nibbles);
#else
  Wide wide = __builtin_convertvector(nibbles, Wide);
#endif
  Wide halves[2] = {wide & 15, wide >> 4};
  Numbers n;
  static_assert(sizeof(n) == sizeof(halves), "16 pairs");
#if defined(__AVX512F__)  // through memory, it would wait for both stores
  n.part[0] = (Shorts)_mm512_inserti64x4(
      _mm512_castsi256_si512((__m256i)halves[0]), (__m256i)halves[1], 1);
#else
  std::memcpy(&n, halves, sizeof(n));
#endif
  return n;
}

inline void add(Sums& sums, const Sums& more) {
  for (int i = 0; i < kParts; ++i) sums.part[i] += more.part[i];
}

// sums += x[0] * (the first of each pair) + x[1] * (the second).
inline void add(Sums& sums, const Numbers& n, const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  for (int i = 0; i < kParts; ++i) {
    Shorts both = (Shorts)(pair + Integers{});
#if defined(__AVX512VNNI__)
    sums.part[i] = (Integers)_mm512_dpwssd_epi32(
        (__m512i)sums.part[i], (__m512i)n.part[i], (__m512i)both);
#elif defined(__AVX512BW__)
    sums.part[i] +=
        (Integers)_mm512_madd_epi16((__m512i)n.part[i], (__m512i)both);
#elif defined(__AVX2__) && !defined(__AVX512F__)
    sums.part[i] +=
        (Integers)_mm256_madd_epi16((__m256i)n.part[i], (__m256i)both);
#elif defined(__SSE2__) && !defined(__AVX__)
    sums.part[i] +=
        (Integers)_mm_madd_epi16((__m128i)n.part[i], (__m128i)both);
#else
    for (int c = 0; c < kWidth; ++c) {
      sums.part[i][c] += n.part[i][2 * c] * both[0] +
                         n.part[i][2 * c + 1] * both[1];
    }
#endif
  }
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
// Sums of 4-bit numbers, two pairs at a time: of columns 0 to 7 and 8 to 15,
// each of the first pairs and of the second ones.
struct PairsOfTwo {
  __m512i lower{}, upper{};
};

// sums += x[0 to 3] * numbers of `unpack_int4`(p) and (p + 16).
template <int R>
inline void add_two(PairsOfTwo* sums, const uint8_t* p, const int16_t* x,
                    int64_t between) {
  __m512i wide = _mm512_cvtepu8_epi16(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  __m512i lower = _mm512_and_si512(wide, _mm512_set1_epi16(15));
  __m512i upper = _mm512_srli_epi16(wide, 4);
  for (int r = 0; r < R; ++r, x += between) {
    int32_t pairs[2];
    std::memcpy(pairs, x, sizeof(pairs));
    __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(pairs[0]), 0xff00,
                                          pairs[1]);
    sums[r].lower = _mm512_dpwssd_epi32(sums[r].lower, lower, both);
    sums[r].upper = _mm512_dpwssd_epi32(sums[r].upper, upper, both);
  }
}

inline Sums join(const PairsOfTwo& sums, Sums to) {
  __m512i first = _mm512_shuffle_i64x2(sums.lower, sums.upper, 0x44);
  __m512i second = _mm512_shuffle_i64x2(sums.lower, sums.upper, 0xee);
  to.part[0] += (Integers)_mm512_add_epi32(first, second);
  return to;
}
#endif

#endif  // pairs_neon.h has them

// Numbers of 8 or 4 bits.
template <int bits>
inline auto unpack(const uint8_t* p) {
  if constexpr (bits == 8) {
    return unpack_int8(reinterpret_cast<const int8_t*>(p));
  } else {
    return unpack_int4(p);
  }
}

inline float half_to_float(uint16_t half) {
  uint32_t sign = uint32_t{half} >> 15 << 31, bits = half & 0x7fffu;
  float x;
  if (bits < 0x400) {  // subnormal, or 0
    x = bits * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &x, sizeof(bits));
  } else {
    bits = (bits << 13) + (bits < 0x7c00 ? 0x38000000u : 0x70000000u);
  }
  bits |= sign;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// A float16 of each column.
inline Columns unpack_scales(const uint16_t* p) {
  Columns scales;
  for (int i = 0; i < kParts; ++i, p += kWidth) {
#if defined(__AVX512F__)
    scales.part[i] = (Vector)_mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
    scales.part[i] = (Vector)_mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(RNN_JAX_NEON)
    scales.part[i] = (Vector)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    for (int c = 0; c < kWidth; ++c) scales.part[i][c] = half_to_float(p[c]);
#endif
  }
  return scales;
}

inline void add_scaled(Columns& to, const Sums& sums, const Columns& scales) {
  for (int i = 0; i < kParts; ++i) {
    Vector exact = __builtin_convertvector(total(sums, i), Vector);
    to.part[i] += exact * scales.part[i];
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_PAIRS_H_
