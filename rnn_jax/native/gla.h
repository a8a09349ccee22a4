// The gated linear recurrence S_t = diag(a_t) S_{t-1} + k_t v_t^T, y_t = S_t^T
// q_t, forward and backward: kernels over plain arrays.
//
// Shapes, row-major: q, k BxLxHxK, v, y BxLxHxP, a BxLxHxK or BxLxHx1, states
// BxHxKxP. A unit of work is one row and head, and a block of P's columns: the
// columns of S are independent. Arithmetic is float32. The state before and
// after a call is float or BFloat16, the states between its steps are float.
//
// Forward is one pass over time with its block of S in the L1 cache. With `kept`
// it also stores S before each segment of steps. Backward visits the segments
// from the last to the first: it runs one again from the stored state, storing
// every S_{t-1}, and goes back over them:
//
//   E += q dy^T     dq = a * (S_{t-1} dy) + k (v . dy)     dk = E v
//   dv = E^T k      da = sum_P E * S_{t-1}                 E *= a
//
// with E the gradient of S_t. With the read before the update, dq = S_{t-1} dy,
// and q dy^T is added to E after it is multiplied by a.
#ifndef RNN_JAX_NATIVE_GLA_H_
#define RNN_JAX_NATIVE_GLA_H_

#include <cstdint>

#include "parallel.h"

namespace rnn_jax {

struct GlaShape {
  int64_t B, L, H, K, P;
  bool by_head;      // a has one decay per head
  bool read_before;  // y_t = S_{t-1}^T q_t
  int64_t segment;   // steps between stored states

  int64_t segments() const { return (L + segment - 1) / segment; }
  int64_t decays() const { return by_head ? 1 : K; }
};

// T is float or BFloat16, the format of q, k, v, y and their gradients.
template <typename T>
struct GlaInputs {
  const T *q, *k, *v;
  const float* a;
};

template <typename T>
struct GlaGradients {
  float* state;
  T *q, *k, *v;
  float* a;
};

// `before` is the state before the first step, which `state` may overwrite.
// `kept`, BxHxNxKxP for N segments, may be null.
template <typename T, typename State>
void gla_forward(const Pool& pool, const GlaShape& shape,
                 const GlaInputs<T>& in, const State* before, State* state,
                 T* y, float* kept);

template <typename T>
void gla_backward(const Pool& pool, const GlaShape& shape,
                  const GlaInputs<T>& in, const float* kept,
                  const float* d_state, const T* d_y,
                  const GlaGradients<T>& out);

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_GLA_H_
