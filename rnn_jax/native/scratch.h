// Memory of a thread, reused by what it runs next.
#ifndef RNN_JAX_NATIVE_SCRATCH_H_
#define RNN_JAX_NATIVE_SCRATCH_H_

#include <cstdint>
#include <vector>

#include "vector.h"

namespace rnn_jax {

inline int64_t rounded_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// At least so many floats, of any values.
inline float* scratch(int64_t floats) {
  static thread_local std::vector<Vector> memory;
  int64_t vectors = rounded_up(floats, kWidth) / kWidth;
  if (static_cast<int64_t>(memory.size()) < vectors) memory.resize(vectors);
  return reinterpret_cast<float*>(memory.data());
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_SCRATCH_H_
