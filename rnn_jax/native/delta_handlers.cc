// delta.h's kernels as XLA's custom calls.

#include "delta.h"
#include "xla.h"

namespace rnn_jax {
namespace {

using Floats = ffi::Buffer<ffi::F32>;
using Result = ffi::ResultBuffer<ffi::F32>;
using AnyResult = ffi::Result<ffi::AnyBuffer>;

GlaShape shape_of(const Floats& k, const Floats& v, const Floats& a,
                  int64_t segment) {
  auto keys = k.dimensions();
  GlaShape shape{keys[0], keys[1],           keys[2],
                 keys[3], v.dimensions()[3], false,
                 false,   segment};
  shape.by_head = a.dimensions()[3] < shape.K;
  return shape;
}

template <bool kGeneral>
ffi::Error run_forward(ffi::ThreadPool& threads, const DeltaInputs& in,
                       const GlaShape& shape, const ffi::AnyBuffer& before,
                       AnyResult& last, Result& y, Result& kept) {
  float* keep = kept->element_count() ? kept->typed_data() : nullptr;
  return with_format(before.element_type(), [&](auto format) {
    using State = decltype(format);
    delta_forward<kGeneral>(pool_of(threads), shape, in,
                            static_cast<const State*>(before.untyped_data()),
                            static_cast<State*>(last->untyped_data()),
                            y->typed_data(), keep);
  });
}

ffi::Error forward(ffi::ThreadPool threads, ffi::AnyBuffer state, Floats q,
                   Floats k, Floats v, Floats a, Floats beta, AnyResult last,
                   Result y, Result kept, int64_t segment) {
  DeltaInputs in{q.typed_data(), k.typed_data(),    v.typed_data(),
                 a.typed_data(), beta.typed_data(), nullptr,
                 nullptr};
  return run_forward<false>(threads, in, shape_of(k, v, a, segment), state,
                            last, y, kept);
}

ffi::Error general_forward(ffi::ThreadPool threads, ffi::AnyBuffer state,
                           Floats q, Floats k, Floats v, Floats a, Floats read,
                           Floats write, AnyResult last, Result y, Result kept,
                           int64_t segment) {
  DeltaInputs in{q.typed_data(), k.typed_data(), v.typed_data(),
                 a.typed_data(), nullptr,        read.typed_data(),
                 write.typed_data()};
  return run_forward<true>(threads, in, shape_of(k, v, a, segment), state, last,
                           y, kept);
}

ffi::Error backward(ffi::ThreadPool threads, Floats kept, Floats q, Floats k,
                    Floats v, Floats a, Floats beta, Floats d_last, Floats d_y,
                    Result d_state, Result d_q, Result d_k, Result d_v,
                    Result d_a, Result d_beta, int64_t segment) {
  DeltaInputs in{q.typed_data(), k.typed_data(),    v.typed_data(),
                 a.typed_data(), beta.typed_data(), nullptr,
                 nullptr};
  DeltaGradients out{d_state->typed_data(), d_q->typed_data(),
                     d_k->typed_data(),     d_v->typed_data(),
                     d_a->typed_data(),     d_beta->typed_data(),
                     nullptr,               nullptr};
  delta_backward<false>(pool_of(threads), shape_of(k, v, a, segment), in,
                        kept.typed_data(), d_last.typed_data(),
                        d_y.typed_data(), out);
  return ffi::Error::Success();
}

ffi::Error general_backward(ffi::ThreadPool threads, Floats kept, Floats q,
                            Floats k, Floats v, Floats a, Floats read,
                            Floats write, Floats d_last, Floats d_y,
                            Result d_state, Result d_q, Result d_k, Result d_v,
                            Result d_a, Result d_read, Result d_write,
                            int64_t segment) {
  DeltaInputs in{q.typed_data(), k.typed_data(), v.typed_data(),
                 a.typed_data(), nullptr,        read.typed_data(),
                 write.typed_data()};
  DeltaGradients out{d_state->typed_data(), d_q->typed_data(),
                     d_k->typed_data(),     d_v->typed_data(),
                     d_a->typed_data(),     nullptr,
                     d_read->typed_data(),  d_write->typed_data()};
  delta_backward<true>(pool_of(threads), shape_of(k, v, a, segment), in,
                       kept.typed_data(), d_last.typed_data(),
                       d_y.typed_data(), out);
  return ffi::Error::Success();
}

}  // namespace
}  // namespace rnn_jax

XLA_FFI_DEFINE_HANDLER_SYMBOL(delta_forward, rnn_jax::forward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Attr<int64_t>("segment"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(delta_general_forward, rnn_jax::general_forward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::ffi::AnyBuffer>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Ret<rnn_jax::ffi::AnyBuffer>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Attr<int64_t>("segment"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(delta_backward, rnn_jax::backward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Attr<int64_t>("segment"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(delta_general_backward,
                              rnn_jax::general_backward,
                              rnn_jax::ffi::Ffi::Bind()
                                  .Ctx<rnn_jax::ffi::ThreadPool>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Arg<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Ret<rnn_jax::Floats>()
                                  .Attr<int64_t>("segment"));
