// Shared by all handlers: XLA's thread pool as a Pool, formats as types.
#ifndef RNN_JAX_NATIVE_XLA_H_
#define RNN_JAX_NATIVE_XLA_H_

#include <utility>

#include "bfloat16.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace rnn_jax {

namespace ffi = xla::ffi;

inline Pool pool_of(ffi::ThreadPool& threads) {
  return Pool{threads.num_threads(), [&threads](std::function<void()> task) {
                threads.Schedule(std::move(task));
              }};
}

// Calls run(T()) for the format of the activations.
template <typename Run>
ffi::Error with_format(ffi::DataType format, const Run& run) {
  switch (format) {
    case ffi::F32:
      run(float());
      return ffi::Error::Success();
    case ffi::BF16:
      run(BFloat16());
      return ffi::Error::Success();
    default:
      return ffi::Error::InvalidArgument("inputs: float32 or bfloat16");
  }
}

// Calls run(T(), State()) for the formats of the activations and of the state.
template <typename Run>
ffi::Error with_formats(std::pair<ffi::DataType, ffi::DataType> formats,
                        const Run& run) {
  ffi::Error inner = ffi::Error::Success();
  ffi::Error error = with_format(formats.first, [&](auto format) {
    inner = with_format(formats.second,
                        [&](auto of_state) { run(format, of_state); });
  });
  return error.failure() ? error : inner;
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_XLA_H_
