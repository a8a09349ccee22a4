// What handlers share: XLA's thread pool as a Pool.
#ifndef RNN_JAX_NATIVE_XLA_H_
#define RNN_JAX_NATIVE_XLA_H_

#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace rnn_jax {

namespace ffi = xla::ffi;

inline Pool pool_of(ffi::ThreadPool& threads) {
  return Pool{threads.num_threads(), [&threads](std::function<void()> task) {
                threads.Schedule(std::move(task));
              }};
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_XLA_H_
