// gla.h's kernels as XLA's custom calls.

#include "bfloat16.h"
#include "gla.h"
#include "xla.h"

namespace rnn_jax {
namespace {

using Float32 = ffi::Buffer<ffi::F32>;
using Float32Result = ffi::ResultBuffer<ffi::F32>;

GlaShape shape_of(const ffi::AnyBuffer& k, const ffi::AnyBuffer& v,
                  const Float32& a, bool read_before, int64_t segment) {
  auto keys = k.dimensions();
  GlaShape shape{keys[0], keys[1],           keys[2],
                 keys[3], v.dimensions()[3], false,
                 read_before, segment};
  shape.by_head = a.dimensions()[3] < shape.K;
  return shape;
}

template <typename T, typename Buffer>
T* data(Buffer& buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

ffi::Error forward(ffi::ThreadPool threads, ffi::AnyBuffer state,
                   ffi::AnyBuffer q, ffi::AnyBuffer k, ffi::AnyBuffer v,
                   Float32 a, ffi::Result<ffi::AnyBuffer> last,
                   ffi::Result<ffi::AnyBuffer> y, Float32Result kept,
                   bool read_before, int64_t segment) {
  GlaShape shape = shape_of(k, v, a, read_before, segment);
  auto types = std::make_pair(k.element_type(), state.element_type());
  return with_formats(types, [&](auto format, auto of_state) {
    using T = decltype(format);
    using State = decltype(of_state);
    GlaInputs<T> in{data<T>(q), data<T>(k), data<T>(v), a.typed_data()};
    float* keep = kept->element_count() ? kept->typed_data() : nullptr;
    gla_forward<T, State>(pool_of(threads), shape, in, data<State>(state),
                          data<State>(*last), data<T>(*y), keep);
  });
}

ffi::Error backward(ffi::ThreadPool threads, Float32 kept, ffi::AnyBuffer q,
                    ffi::AnyBuffer k, ffi::AnyBuffer v, Float32 a,
                    Float32 d_last, ffi::AnyBuffer d_y, Float32Result d_state,
                    ffi::Result<ffi::AnyBuffer> d_q,
                    ffi::Result<ffi::AnyBuffer> d_k,
                    ffi::Result<ffi::AnyBuffer> d_v, Float32Result d_a,
                    bool read_before, int64_t segment) {
  GlaShape shape = shape_of(k, v, a, read_before, segment);
  return with_format(k.element_type(), [&](auto format) {
    using T = decltype(format);
    GlaInputs<T> in{data<T>(q), data<T>(k), data<T>(v), a.typed_data()};
    GlaGradients<T> out{d_state->typed_data(), data<T>(*d_q), data<T>(*d_k),
                        data<T>(*d_v), d_a->typed_data()};
    gla_backward(pool_of(threads), shape, in, kept.typed_data(),
                 d_last.typed_data(), data<T>(d_y), out);
  });
}

}  // namespace
}  // namespace rnn_jax

XLA_FFI_DEFINE_HANDLER_SYMBOL(gla_forward, rnn_jax::forward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Float32>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Attr<bool>("read_before")
                                  .Attr<int64_t>("segment"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(gla_backward, rnn_jax::backward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::Float32>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Float32>()
                                  .Attr<bool>("read_before")
                                  .Attr<int64_t>("segment"));
