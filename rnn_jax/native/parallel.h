// Work shared with XLA's own threads.
#ifndef RNN_JAX_NATIVE_PARALLEL_H_
#define RNN_JAX_NATIVE_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "awake.h"
#include "loop.h"

namespace rnn_jax {

// Runs tasks: `schedule` may run one at once, later, or only after its caller
// has returned.
struct Pool {
  int64_t threads;
  std::function<void(std::function<void()>)> schedule;
};

// Runs body(0), ..., body(count - 1), each once, and returns when all are done.
//
// The caller takes items too, and waits only for those that another thread is
// already running. So a pool whose threads are all busy, or blocked here
// themselves, delays nothing and can't deadlock. Threads that wait awake for it
// help first. With `reads`, what all items together read in their order, those
// that help stay awake for the next loop.
template <typename Body>
void parallel_for(const Pool& pool, int64_t count, const Body& body,
                  Reads reads = {}) {
  const int64_t helpers = (count < pool.threads ? count : pool.threads) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  auto loop = std::make_shared<Loop>(count, helpers + 1, body);
  const int64_t most_awake = reads.bytes ? pool.threads - 1 : 0;
  for (int64_t i = Awake::threads().offer(loop, reads); i < helpers; ++i) {
    pool.schedule([loop, most_awake] {
      loop->work();
      if (most_awake) Awake::threads().stay(most_awake);
    });
  }
  loop->work_as_caller();
  while (!loop->is_done()) std::this_thread::yield();
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_PARALLEL_H_
