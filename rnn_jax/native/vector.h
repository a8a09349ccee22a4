// Vectors of floats of the target's width, by GCC's and Clang's vector
// extensions: AVX-512, AVX, or 128 bits (SSE, NEON).
#ifndef RNN_JAX_NATIVE_VECTOR_H_
#define RNN_JAX_NATIVE_VECTOR_H_

#include <cstdint>
#include <cstring>

#if defined(__ARM_NEON) && defined(__aarch64__)
#define RNN_JAX_NEON
#include <arm_neon.h>
#endif

namespace rnn_jax {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vector __attribute__((vector_size(4 * kWidth)));
// The same at any address; may_alias, as it is read from arrays of floats.
typedef float Unaligned
    __attribute__((vector_size(4 * kWidth), aligned(4), may_alias));

inline Vector load(const float* p) {
  return *reinterpret_cast<const Unaligned*>(p);
}
inline void store(float* p, Vector x) { *reinterpret_cast<Unaligned*>(p) = x; }
inline Vector broadcast(float x) { return x - Vector{}; }

#if defined(__clang__)
#define RNN_JAX_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t Index __attribute__((vector_size(4 * kWidth)));
#define RNN_JAX_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Index{__VA_ARGS__})
#endif

// The sums of kWidth vectors' elements: out[i] = sum of x[i * kWidth ...].
inline Vector sums(const float* x) {
  Vector v[kWidth];
  for (int i = 0; i < kWidth; ++i) v[i] = load(x + i * kWidth);
#if defined(RNN_JAX_NEON)
  auto add = [](Vector a, Vector b) {  // neighbours, of a and of b
    return (Vector)vpaddq_f32((float32x4_t)a, (float32x4_t)b);
  };
  return add(add(v[0], v[1]), add(v[2], v[3]));
#else
  // Pairs within 128 bits first: these shuffles are cheap.
  for (int i = 0; i < kWidth; i += 2) {
#if defined(__AVX512F__)
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8,
                               24, 9, 25, 12, 28, 13, 29) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10,
                               26, 11, 27, 14, 30, 15, 31);
#elif defined(__AVX__)
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
#else
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 4, 1, 5) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 6, 3, 7);
#endif
  }
  for (int i = 0; i < kWidth / 2; i += 2) {
#if defined(__AVX512F__)
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9,
                               24, 25, 12, 13, 28, 29) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 3, 18, 19, 6, 7, 22, 23, 10,
                               11, 26, 27, 14, 15, 30, 31);
#elif defined(__AVX__)
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
#else
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 1, 4, 5) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 2, 3, 6, 7);
#endif
  }
#if defined(__AVX512F__)
  // Then 128-bit lanes: v[j] holds rows 4 j to 4 j + 3, once in each lane.
  for (int i = 0; i < 4; i += 2) {
    v[i / 2] = RNN_JAX_SHUFFLE(v[i], v[i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17,
                               18, 19, 24, 25, 26, 27) +
               RNN_JAX_SHUFFLE(v[i], v[i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20,
                               21, 22, 23, 28, 29, 30, 31);
  }
  v[0] = RNN_JAX_SHUFFLE(v[0], v[1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                         24, 25, 26, 27) +
         RNN_JAX_SHUFFLE(v[0], v[1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23,
                         28, 29, 30, 31);
#elif defined(__AVX__)
  v[0] = RNN_JAX_SHUFFLE(v[0], v[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         RNN_JAX_SHUFFLE(v[0], v[1], 4, 5, 6, 7, 12, 13, 14, 15);
#endif
  return v[0];
#endif
#undef RNN_JAX_SHUFFLE
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_VECTOR_H_
