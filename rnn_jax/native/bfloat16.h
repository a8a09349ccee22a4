// bfloat16: the upper half of a float; numbers and vectors of them.
#ifndef RNN_JAX_NATIVE_BFLOAT16_H_
#define RNN_JAX_NATIVE_BFLOAT16_H_

#include <cstdint>
#include <cstring>

#include "vector.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace rnn_jax {

struct BFloat16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) {
  uint32_t wide = uint32_t{x.bits} << 16;
  float result;
  std::memcpy(&result, &wide, sizeof(result));
  return result;
}

inline void assign(float& to, float x) { to = x; }
// Rounds to nearest, ties to even; a NaN stays a NaN. A subnormal number becomes
// 0, as by AVX-512's instruction.
inline void assign(BFloat16& to, float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, sizeof(wide));
  if (!(wide & 0x7f800000)) wide &= 0x80000000;
  uint32_t rounded = wide + 0x7fff + ((wide >> 16) & 1);
  to.bits = static_cast<uint16_t>((x == x ? rounded : wide | 0x400000) >> 16);
}

typedef uint16_t Halves __attribute__((vector_size(2 * kWidth)));
typedef uint32_t Bits __attribute__((vector_size(4 * kWidth)));

// By instructions: of __builtin_convertvector, GCC makes two of half the width.
inline Bits widen(Halves halves) {
#if defined(__AVX512F__)
  return (Bits)_mm512_cvtepu16_epi32((__m256i)halves);
#elif defined(__AVX2__)
  return (Bits)_mm256_cvtepu16_epi32((__m128i)halves);
#else
  return __builtin_convertvector(halves, Bits);
#endif
}

inline Vector load(const BFloat16* p) {
  Halves halves;
  std::memcpy(&halves, p, sizeof(halves));
  return (Vector)(widen(halves) << 16);
}
// Rounds as `assign`.
inline void store(BFloat16* p, Vector x) {
#if defined(__AVX512BF16__)
  auto halves = _mm512_cvtneps_pbh((__m512)x);
#else
  Bits wide = (Bits)x;
  wide &= (wide & 0x7f800000) ? ~Bits{} : Bits{} + 0x80000000;
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  auto halves = vcvt_bf16_f32((float32x4_t)wide);  // keeps subnormal numbers
#else
  Bits rounded = wide + 0x7fff + ((wide >> 16) & 1);
  Bits bits = (x == x ? rounded : wide | 0x400000) >> 16;
  Halves halves = __builtin_convertvector(bits, Halves);
#endif
#endif
  std::memcpy(p, &halves, sizeof(halves));
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_BFLOAT16_H_
