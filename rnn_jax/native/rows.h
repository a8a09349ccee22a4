// Operations on a row's numbers that row_programs.cc and rows.cc share. Each is
// compiled once: two copies could round differently.
#ifndef RNN_JAX_NATIVE_ROWS_H_
#define RNN_JAX_NATIVE_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "parallel.h"

namespace rnn_jax {

constexpr int64_t kShared = 1 << 16;  // numbers from which threads share them
constexpr int64_t kItem = 1 << 14;    // numbers of a work item
constexpr int kTogether = 4;          // rows that meet weights at once

// y[i] = sum_n x[n, i] of x NxI, in an order that depends on N and whether I is
// 1: lane by lane of some vectors, and then these in turn; n in turn if I > 1.
void add_up(const float* x, int64_t N, int64_t I, float* y);

// Rows with the same weights, and by how many numbers two of them are apart.
struct Rows {
  int64_t count, x = 0, y = 0;
};

// y[r, f] = sum_k x[r, k] w[k, f], whose numbers are `x_k`, `w_k` and `w_f`
// apart. A row's bits are the same for any number of rows.
void multiply_rows(const Rows& rows, const float* x, int64_t x_k,
                   const float* w, int64_t w_k, int64_t w_f, int64_t K,
                   int64_t F, float* y);

// y = f(x) of n numbers, for functions by their numbers in
// ops/fixed_order/schedule.py. False: there is no such function.
bool apply_function(int64_t name, const float* x, int64_t n, float* y);

// Never inlined: two copies of `run` could round differently.
template <typename Run>
__attribute__((noinline)) void run_all(int64_t first, int64_t end,
                                       const Run& run) {
  for (int64_t i = first; i < end; ++i) run(i);
}

// Calls run(i) for each of `count` items of `each` numbers.
template <typename Run>
void for_each(const Pool& pool, int64_t count, int64_t each, const Run& run) {
  if (count * each < kShared || pool.threads < 2) {
    return run_all(0, count, run);
  }
  const int64_t together = std::max<int64_t>(1, kItem / each);
  parallel_for(pool, (count + together - 1) / together, [&](int64_t item) {
    run_all(item * together, std::min(count, (item + 1) * together), run);
  });
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_ROWS_H_
