// bfloat16: the upper half of a float.
#ifndef RNN_JAX_NATIVE_BFLOAT16_H_
#define RNN_JAX_NATIVE_BFLOAT16_H_

#include <cstdint>
#include <cstring>

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
// Rounds to nearest, ties to even; a NaN stays a NaN.
inline void assign(BFloat16& to, float x) {
  uint32_t wide;
  std::memcpy(&wide, &x, sizeof(wide));
  uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
  to.bits = static_cast<uint16_t>(x == x ? rounded : (wide >> 16) | 0x40);
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_BFLOAT16_H_
