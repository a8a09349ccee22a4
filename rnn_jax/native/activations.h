// Sigmoid and tanh of vectors, and loads and stores at the end of an array.
#ifndef RNN_JAX_NATIVE_ACTIVATIONS_H_
#define RNN_JAX_NATIVE_ACTIVATIONS_H_

#include "vector.h"

namespace rnn_jax {

typedef int32_t Integers __attribute__((vector_size(4 * kWidth)));

// The first n elements; the others are 0.
inline Vector load(const float* p, int64_t n) {
  if (n >= kWidth) return load(p);
  Vector x{};
  std::memcpy(&x, p, n * sizeof(float));
  return x;
}
inline void store(float* p, Vector x, int64_t n) {
  if (n >= kWidth) return store(p, x);
  std::memcpy(p, &x, n * sizeof(float));
}

inline Vector select(Integers where, Vector yes, Vector no) {
  return (Vector)((where & (Integers)yes) | (~where & (Integers)no));
}

// e^x to a relative 1e-7 between -87.3 and 88.3; infinity above, NaN for NaN.
// Source: Moshier, "Cephes Mathematical Library", expf.
inline Vector exponential(Vector x) {
  x = select(x > 89.0f, broadcast(89.0f), x);
  x = select(x < -87.3f, broadcast(-87.3f), x);
  const float round = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction bits
  Vector rounded = x * 1.44269504088896341f + round;
  Vector n = rounded - round;
  Vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vector p = broadcast(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Integers exponent = (Integers)rounded - 0x4B400000 + 127;
  return p * (Vector)(exponent << 23);
}

inline Vector sigmoid(Vector x) { return 1.0f / (1.0f + exponential(-x)); }

// Source: as above, tanhf.
inline Vector tanh(Vector x) {
  const int32_t kSign = static_cast<int32_t>(0x80000000);
  Integers sign = (Integers)x & kSign;
  Vector size = (Vector)((Integers)x & ~kSign);
  Vector z = x * x;
  Vector p = broadcast(-5.70498872745e-3f);
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  Vector near = p * z * x + x;
  Vector far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  far = (Vector)((Integers)far | sign);
  return select(size < 0.625f, near, far);
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_ACTIVATIONS_H_
