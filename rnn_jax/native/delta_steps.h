// One step of the delta rule and of its general form, forward and backward, for
// a block of columns; delta.cc runs it over time. The equations are in delta.h.
//
// Each pass over the state does the last work of one step and the first of the
// next, so that a step loads and stores the state once.
#ifndef RNN_JAX_NATIVE_DELTA_STEPS_H_
#define RNN_JAX_NATIVE_DELTA_STEPS_H_

#include "gla_steps.h"

namespace rnn_jax {

#if defined(__AVX512F__) || defined(__ARM_NEON)
constexpr int kMostOfDelta = 8;  // vectors in a block: two sums of each
#else
constexpr int kMostOfDelta = 4;
#endif

// The vectors of K of one step.
struct DeltaStep {
  const float *q, *k, *a, *read, *write;
};

// r = S^T read.
template <int N, typename State>
void read_state(int64_t K, const float* read, Rows<State> S, float* r) {
  Vector sum[N] = {};
  for (int64_t i = 0; i < K; ++i) {
    Vector read_i = broadcast(read[i]);
    for (int j = 0; j < N; ++j) sum[j] += read_i * load(S[i] + j * kWidth);
  }
  for (int j = 0; j < N; ++j) store(r + j * kWidth, sum[j]);
}

// to = diag(a) S + k x^T, or diag(a) S + k v^T + write x^T; y = to^T q if kRead;
// r = to^T next. `to` may be S; sums are in float, whatever its format.
template <int N, bool kGeneral, bool kRead, typename State>
void advance_delta(int64_t K, const DeltaStep& step, const float* next,
                   const float* v, const float* x, Rows<const State> S,
                   Rows<State> to, float* y, float* r) {
  Vector of_q[N] = {}, of_next[N] = {};
  for (int64_t i = 0; i < K; ++i) {
    Vector a_i = broadcast(step.a[i]), k_i = broadcast(step.k[i]);
    Vector next_i = broadcast(next[i]), q_i = {}, write_i = {};
    if (kRead) q_i = broadcast(step.q[i]);
    if (kGeneral) write_i = broadcast(step.write[i]);
    for (int j = 0; j < N; ++j) {
      Vector s = a_i * load(S[i] + j * kWidth);
      s += k_i * load((kGeneral ? v : x) + j * kWidth);
      if (kGeneral) s += write_i * load(x + j * kWidth);
      if (kRead) of_q[j] += q_i * s;
      of_next[j] += next_i * s;
      store(to[i] + j * kWidth, s);
    }
  }
  for (int j = 0; j < N; ++j) {
    if (kRead) store(y + j * kWidth, of_q[j]);
    store(r + j * kWidth, of_next[j]);
  }
}

// E += q dy^T, then d = E^T by.
template <int N>
void add_reading(int64_t K, const float* q, const float* dy, const float* by,
                 float* E, float* d) {
  Vector sum[N] = {};
  for (int64_t i = 0; i < K; ++i, E += N * kWidth) {
    Vector q_i = broadcast(q[i]), by_i = broadcast(by[i]);
    for (int j = 0; j < N; ++j) {
      Vector e = load(E + j * kWidth) + q_i * load(dy + j * kWidth);
      sum[j] += by_i * e;
      store(E + j * kWidth, e);
    }
  }
  for (int j = 0; j < N; ++j) store(d + j * kWidth, sum[j]);
}

// What `retreat` reads and writes beside E. The vectors of a block: `wrote` is
// what the step wrote by k (delta rule) or by `write`, `d_read` the gradient of
// its reading.
struct Retreat {
  const float *v, *wrote, *d_read, *dy;
  const float *earlier_q, *earlier_dy, *earlier_by;  // of the step before
  float *dv, *d;  // of v (general form), and E^T earlier_by
};

// One step of the delta rule back: E becomes the gradient of the earlier state,
// its reading by q included. For each row of S it writes the vectors whose
// elements sum to S dy, dk and da, 3 x K.
template <int N>
void retreat_delta(int64_t K, const DeltaStep& step, const Retreat& at,
                   const float* S, float* E, float* products) {
  Vector sum[N] = {};
  int64_t apart = rounded_up(K, kWidth) * kWidth;
  for (int64_t i = 0; i < K; ++i, S += N * kWidth, E += N * kWidth) {
    Vector k_i = broadcast(step.k[i]), a_i = broadcast(step.a[i]);
    Vector q_i = broadcast(at.earlier_q[i]), by_i = broadcast(at.earlier_by[i]);
    Vector dq = {}, written = {}, read = {}, da = {};
    for (int j = 0; j < N; ++j) {
      Vector s = load(S + j * kWidth), e = load(E + j * kWidth);
      Vector d_read = load(at.d_read + j * kWidth);
      written += e * load(at.wrote + j * kWidth);
      read += s * d_read;
      dq += s * load(at.dy + j * kWidth);
      e -= k_i * d_read;
      da += e * s;
      e = a_i * e + q_i * load(at.earlier_dy + j * kWidth);
      sum[j] += by_i * e;
      store(E + j * kWidth, e);
    }
    store(products + i * kWidth, dq);
    store(products + apart + i * kWidth, written - a_i * read);
    store(products + 2 * apart + i * kWidth, da);
  }
  for (int j = 0; j < N; ++j) store(at.d + j * kWidth, sum[j]);
}

// The same of the general form: S dy, dk, da, d_read and d_write, 5 x K.
template <int N>
void retreat_general(int64_t K, const DeltaStep& step, const Retreat& at,
                     const float* S, float* E, float* products) {
  Vector of_k[N] = {}, sum[N] = {};
  int64_t apart = rounded_up(K, kWidth) * kWidth;
  for (int64_t i = 0; i < K; ++i, S += N * kWidth, E += N * kWidth) {
    Vector k_i = broadcast(step.k[i]), a_i = broadcast(step.a[i]);
    Vector read_i = broadcast(step.read[i]);
    Vector q_i = broadcast(at.earlier_q[i]), by_i = broadcast(at.earlier_by[i]);
    Vector dq = {}, dk = {}, da = {}, d_read = {}, d_write = {};
    for (int j = 0; j < N; ++j) {
      Vector s = load(S + j * kWidth), e = load(E + j * kWidth);
      Vector from_read = load(at.d_read + j * kWidth);
      dq += s * load(at.dy + j * kWidth);
      dk += e * load(at.v + j * kWidth);
      da += e * s;
      d_read += s * from_read;
      d_write += e * load(at.wrote + j * kWidth);
      of_k[j] += k_i * e;
      e = a_i * e + read_i * from_read;
      e += q_i * load(at.earlier_dy + j * kWidth);
      sum[j] += by_i * e;
      store(E + j * kWidth, e);
    }
    Vector rows[] = {dq, dk, da, d_read, d_write};
    for (int n = 0; n < 5; ++n) store(products + n * apart + i * kWidth, rows[n]);
  }
  for (int j = 0; j < N; ++j) {
    store(at.dv + j * kWidth, of_k[j]);
    store(at.d + j * kWidth, sum[j]);
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_DELTA_STEPS_H_
