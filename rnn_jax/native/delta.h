// The delta rule and its general form, forward and backward: kernels over plain
// arrays of floats. The state before and after a call may be BFloat16.
//
//   delta rule:    S_t = diag(a) S_{t-1} + k x^T      x = beta e
//                  e = v - S_{t-1}^T (a * k)
//   general form:  S_t = diag(a) S_{t-1} + k v^T + write u^T
//                  u = S_{t-1}^T read                 y_t = S_t^T q_t
//
// Shapes, row-major: q, k, read, write BxLxHxK, v, y BxLxHxP, a BxLxHxK or
// BxLxHx1, beta BxLxH, states BxHxKxP. A unit of work is a row and a head; the
// columns of S are independent, and are taken in blocks.
//
// Forward is one pass over time with a block of S in the L1 cache. With `kept`
// it also stores S before each segment of steps. Backward visits the segments
// from the last to the first: it runs one again from the stored state, storing
// every S_{t-1}, and goes back over them, with E the gradient of S_t:
//
//   E += q dy^T     dq = S_t dy = a * (S_{t-1} dy) + what the step wrote, read
//
//   delta rule:    d = E^T k       dbeta = d . e       dv = beta d
//                  dk = E x - a * (S_{t-1} dv)         E <- E - k dv^T
//                  da = sum_P E * S_{t-1}              E <- diag(a) E
//   general form:  d = E^T write   dv = E^T k          dk = E v
//                  dwrite = E u    dread = S_{t-1} d   da = sum_P E * S_{t-1}
//                  E <- diag(a) E + read d^T
#ifndef RNN_JAX_NATIVE_DELTA_H_
#define RNN_JAX_NATIVE_DELTA_H_

#include "gla.h"

namespace rnn_jax {

// beta is of the delta rule, read and write are of the general form.
struct DeltaInputs {
  const float *q, *k, *v, *a, *beta, *read, *write;
};

struct DeltaGradients {
  float* state;
  float *q, *k, *v, *a, *beta, *read, *write;
};

// `before` is the state before the first step, which `state` may overwrite.
// `kept`, BxHxNxKxP for N segments, may be null.
template <bool kGeneral, typename State>
void delta_forward(const Pool& pool, const GlaShape& shape,
                   const DeltaInputs& in, const State* before, State* state,
                   float* y, float* kept);

template <bool kGeneral>
void delta_backward(const Pool& pool, const GlaShape& shape,
                    const DeltaInputs& in, const float* kept,
                    const float* d_state, const float* d_y,
                    const DeltaGradients& out);

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_DELTA_H_
