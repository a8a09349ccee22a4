// Threads that wait awake for the next loop.
//
// One that sleeps takes some 10 us to wake, as long as it takes to read a
// matrix of a small model. So a thread that has multiplied by weights stays
// awake for kAwake, and meanwhile prefetches its part of the weights that came
// next when it was there before: in decoding, each step reads the same ones in
// the same order. It gives its core to any other thread that wants it.
#ifndef RNN_JAX_NATIVE_AWAKE_H_
#define RNN_JAX_NATIVE_AWAKE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "loop.h"

namespace rnn_jax {

constexpr std::chrono::microseconds kAwake{100};
constexpr int64_t kPrefetched = 256 << 10;  // bytes of a thread's cache

// Memory that a loop reads.
struct Reads {
  const char* begin = nullptr;
  int64_t bytes = 0;
};

class Awake {
 public:
  // Those of this process, of any pool.
  static Awake& threads() {
    static Awake* const all = new Awake;  // threads may outlive other objects
    return *all;
  }

  // Wakes nobody. Returns how many threads will take part in the loop.
  int64_t offer(const std::shared_ptr<Loop>& loop, Reads reads) {
    if (!reads.bytes && !waiting_.load(std::memory_order_relaxed)) return 0;
    std::lock_guard<std::mutex> lock(mutex_);
    if (reads.bytes) {
      next_[place(last_)] = {last_, reads};
      last_ = reads.begin;
    }
    loop_ = loop;
    offers_.fetch_add(1, std::memory_order_release);
    return waiting_.load(std::memory_order_relaxed);
  }

  // Waits for loops and works on them; returns after kAwake without one, or at
  // once if `most` threads wait. With their callers they are most + 1.
  void stay(int64_t most) {
    std::shared_ptr<Loop> loop;
    std::unique_lock<std::mutex> lock(mutex_);
    if (waiting_.load(std::memory_order_relaxed) >= most) return;
    for (;;) {
      const int64_t seen = offers_.load(std::memory_order_relaxed);
      const int64_t part = 1 + waiting_.fetch_add(1, std::memory_order_relaxed);
      const Reads next = followed_by(last_, part, most + 1);
      lock.unlock();
      const bool is_new = wait(seen, next);
      lock.lock();
      waiting_.fetch_sub(1, std::memory_order_relaxed);
      if (!is_new && offers_.load(std::memory_order_relaxed) == seen) return;
      loop = loop_;
      lock.unlock();
      loop->work();
      loop.reset();
      lock.lock();
    }
  }

 private:
  struct Next {
    const char* of = nullptr;
    Reads reads;
  };

  Awake() = default;

  static int64_t place(const char* p) {
    return (reinterpret_cast<uintptr_t>(p) >> 6) % kKnown;
  }

  // A part, of `parts`, of what was read after `begin`.
  Reads followed_by(const char* begin, int64_t part, int64_t parts) const {
    const Next& next = next_[place(begin)];
    if (next.of != begin) return {};
    const Reads& reads = next.reads;
    const int64_t skipped = reads.bytes * part / parts;
    return {reads.begin + skipped,
            std::min(reads.bytes / parts, kPrefetched)};
  }

  // Returns whether a loop is offered.
  bool wait(int64_t seen, Reads next) const {
    const auto end = std::chrono::steady_clock::now() + kAwake;
    while (offers_.load(std::memory_order_acquire) == seen) {
      if (next.bytes > 0) {
        for (int line = 0; line < 16; ++line) {
          __builtin_prefetch(next.begin + 64 * line, 0, 2);
        }
        next = {next.begin + 1024, next.bytes - 1024};
      } else {
        std::this_thread::yield();
        if (std::chrono::steady_clock::now() > end) return false;
      }
    }
    return true;
  }

  static constexpr int64_t kKnown = 1021;  // matrices; a prime

  std::mutex mutex_;
  std::atomic<int64_t> offers_{0}, waiting_{0};
  // Guarded by mutex_:
  std::shared_ptr<Loop> loop_;
  const char* last_ = nullptr;
  std::array<Next, kKnown> next_{};
};

}  // namespace rnn_jax

#endif  // RNN_JAX_NATIVE_AWAKE_H_
