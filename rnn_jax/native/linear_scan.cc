// The elementwise linear recurrence h_t = f_t h_{t-1} + u_t of BxLxS arrays,
// and its gradients; the equations are in ops/linear_scan.

#include <algorithm>
#include <vector>

#include "vector.h"
#include "xla.h"

namespace rnn_jax {
namespace {

constexpr int64_t kChannels = 256;  // per work item

struct Shape {
  int64_t B, L, S;
  int64_t blocks() const { return (S + kChannels - 1) / kChannels; }
};

Shape shape_of(ffi::AnyBuffer::Dimensions dims) {
  return {dims[0], dims[1], dims[2]};
}

// Runs body(offset of a row's first step, channels) for rows and blocks.
template <typename Body>
void each(const Pool& pool, Shape shape, const Body& body) {
  parallel_for(pool, shape.B * shape.blocks(), [&](int64_t item) {
    int64_t row = item / shape.blocks();
    int64_t first = item % shape.blocks() * kChannels;
    body(row, first, std::min(kChannels, shape.S - first));
  });
}

ffi::Error forward(ffi::ThreadPool threads, ffi::Buffer<ffi::F32> state,
                   ffi::Buffer<ffi::F32> f, ffi::Buffer<ffi::F32> u,
                   ffi::ResultBuffer<ffi::F32> h) {
  Shape shape = shape_of(u.dimensions());
  const float* from = state.typed_data();
  const float* keep = f.typed_data();
  const float* add = u.typed_data();
  float* to = h->typed_data();
  each(pool_of(threads), shape, [=](int64_t row, int64_t first, int64_t n) {
    const float* before = from + row * shape.S + first;
    for (int64_t t = 0; t < shape.L; ++t) {
      int64_t at = (row * shape.L + t) * shape.S + first;
      float* out = to + at;
      for (int64_t s = 0; s < n; ++s) {
        out[s] = keep[at + s] * before[s] + add[at + s];
      }
      before = out;
    }
  });
  return ffi::Error::Success();
}

ffi::Error backward(ffi::ThreadPool threads, ffi::Buffer<ffi::F32> state,
                    ffi::Buffer<ffi::F32> f, ffi::Buffer<ffi::F32> h,
                    ffi::Buffer<ffi::F32> d_h,
                    ffi::ResultBuffer<ffi::F32> d_state,
                    ffi::ResultBuffer<ffi::F32> d_f,
                    ffi::ResultBuffer<ffi::F32> d_u) {
  Shape shape = shape_of(h.dimensions());
  const float* from = state.typed_data();
  const float* keep = f.typed_data();
  const float* states = h.typed_data();
  const float* given = d_h.typed_data();
  float* to_state = d_state->typed_data();
  float* to_f = d_f->typed_data();
  float* to_u = d_u->typed_data();
  each(pool_of(threads), shape, [=](int64_t row, int64_t first, int64_t n) {
    float carried[kChannels] = {};  // f_{t+1} d_{t+1}
    for (int64_t t = shape.L; t-- > 0;) {
      int64_t at = (row * shape.L + t) * shape.S + first;
      const float* before =
          t ? states + at - shape.S : from + row * shape.S + first;
      for (int64_t s = 0; s < n; ++s) {
        float d = given[at + s] + carried[s];
        to_u[at + s] = d;
        to_f[at + s] = d * before[s];
        carried[s] = keep[at + s] * d;
      }
    }
    std::copy(carried, carried + n, to_state + row * shape.S + first);
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(linear_scan_forward, forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(linear_scan_backward, backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

}  // namespace rnn_jax
