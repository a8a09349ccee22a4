// Functions of vectors that activations.h doesn't have.
#ifndef RNN_JAX_NATIVE_FUNCTIONS_H_
#define RNN_JAX_NATIVE_FUNCTIONS_H_

#include <limits>

#include "activations.h"

namespace rnn_jax {

// As `exponential`, and 0 below -87.3.
inline Vector exponential_or_zero(Vector x) {
  return select(x < -87.3f, Vector{}, exponential(x));
}

// log x to a relative 1e-7; subnormal numbers count as 0.
// Source: Moshier, "Cephes Mathematical Library", logf.
inline Vector logarithm(Vector x) {
  const float infinity = std::numeric_limits<float>::infinity();
  Integers bits = (Integers)x;
  Vector mantissa = (Vector)((bits & 0x007FFFFF) | 0x3F000000);
  Integers small = mantissa < 0.70710678f;  // -1 where it is
  Vector n = __builtin_convertvector((bits >> 23) - 126 + small, Vector);
  Vector r = select(small, mantissa + mantissa, mantissa) - 1.0f;
  Vector z = r * r;
  Vector p = broadcast(7.0376836292e-2f);
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  Vector y = r * z * p - n * 2.12194440e-4f - 0.5f * z + r + n * 0.693359375f;
  y = select(x < 1.1754944e-38f, Vector{} - infinity, y);
  y = select(x == infinity, x, y);
  // Of NaN and of negative numbers, NaN.
  return select(x >= 0.0f, y, (x - x) / Vector{});
}

// log(1 + x), near 0 as 2 artanh(x / (2 + x)).
inline Vector logarithm_1p(Vector x) {
  Integers near = (x > -0.3f) & (x < 0.5f);
  Vector small = select(near, x, Vector{});
  Vector t = small / (2.0f + small), z = t * t;
  Vector p = broadcast(1.0f / 11);
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  p = p * z + 1.0f;
  return select(near, 2.0f * t * p, logarithm(1.0f + x));
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_FUNCTIONS_H_
