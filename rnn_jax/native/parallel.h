// Work shared with XLA's own threads.
#ifndef RNN_JAX_NATIVE_PARALLEL_H_
#define RNN_JAX_NATIVE_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

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
// themselves, delays nothing and can't deadlock.
template <typename Body>
void parallel_for(const Pool& pool, int64_t count, const Body& body) {
  struct Shared {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  int64_t helpers = (count < pool.threads ? count : pool.threads) - 1;
  if (helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  auto shared = std::make_shared<Shared>();
  // A task that begins after the last item was taken never touches `body`.
  auto work = [shared, count, body = &body] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
      (*body)(i);
      shared->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 0; i < helpers; ++i) pool.schedule(work);
  work();
  while (shared->done.load(std::memory_order_acquire) < count) {
    std::this_thread::yield();
  }
}

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_PARALLEL_H_
