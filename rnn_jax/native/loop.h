// A loop whose items several threads take.
#ifndef RNN_JAX_NATIVE_LOOP_H_
#define RNN_JAX_NATIVE_LOOP_H_

#include <atomic>
#include <cstdint>
#include <memory>

namespace rnn_jax {

// Each thread begins with a part of its own, items next to each other, which
// are next to each other in memory too, and then takes what others have left.
class Loop {
 public:
  // body(i) for i from 0 to count - 1. A thread that begins after the last item
  // was taken never touches `body`.
  template <typename Body>
  Loop(int64_t count, int64_t parts, const Body& body)
      : count_(count),
        parts_(parts),
        next_(new Next[parts]),
        body_(&body),
        run_([](const void* body, int64_t i) {
          (*static_cast<const Body*>(body))(i);
        }) {
    for (int64_t part = 0; part < parts; ++part) next_[part].item = first(part);
  }

  // Takes items, of the first part first.
  void work_as_caller() { work_from(0); }
  void work() { work_from(begun_.fetch_add(1, std::memory_order_relaxed)); }

  bool is_done() const {
    return done_.load(std::memory_order_acquire) == count_;
  }

 private:
  struct alignas(64) Next {  // a cache line of its own
    std::atomic<int64_t> item;
  };

  int64_t first(int64_t part) const { return count_ * part / parts_; }

  void work_from(int64_t own) {
    for (int64_t i = 0; i < parts_; ++i) {
      const int64_t part = (own + i) % parts_, end = first(part + 1);
      std::atomic<int64_t>& next = next_[part].item;
      while (next.load(std::memory_order_relaxed) < end) {
        const int64_t item = next.fetch_add(1);
        if (item >= end) break;
        run_(body_, item);
        done_.fetch_add(1, std::memory_order_release);
      }
    }
  }

  const int64_t count_, parts_;
  const std::unique_ptr<Next[]> next_;
  const void* const body_;
  void (*const run_)(const void*, int64_t);
  std::atomic<int64_t> begun_{1}, done_{0};
};

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_LOOP_H_
