// Waiting for a 32-bit word to move on: spin while that is cheap, then sleep.
//
// Between the two lies no sched_yield: the Linux scheduler takes a slice away from a thread for every yield, so a
// thread that yields in a loop beside other load does not get back onto its core when its work is there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {

using Word = std::atomic<uint32_t>;

inline int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Numbers wrap around, so later means ahead by less than half of them.
inline bool is_past(const Word& word, uint32_t seen) {
  return static_cast<int32_t>(word.load(std::memory_order_acquire) - seen) > 0;
}

// Spin until `word` is past `seen`, for so long at most; true if it is. A pause takes 10 to 150 cycles, hence the
// clock.
inline bool spin(const Word& word, uint32_t seen, int64_t nanoseconds) {
  for (int64_t end = 0;;) {
    for (int i = 0; i < 16; ++i) {
      if (is_past(word, seen)) return true;
      relax();
    }
    const int64_t now = nanoseconds_now();
    if (end == 0) end = now + nanoseconds;
    if (now >= end) return false;
  }
}

// Sleep until `word` is past `seen`; `wake` follows each change of it that `sleepers` might wait for.
inline void sleep(Word& word, uint32_t seen, std::atomic<int>& sleepers) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t value = word.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(value - seen) > 0) break;
#if defined(__linux__)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
    word.wait(value, std::memory_order_acquire);
#endif
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

// Move `word` on to `value`, unless it is past that already, and wake the threads that sleep on it. Its accesses are in
// one order with those of `sleep`.
inline void move_on(Word& word, uint32_t value, const std::atomic<int>& sleepers) {
  uint32_t old = word.load(std::memory_order_relaxed);
  while (static_cast<int32_t>(value - old) > 0 && !word.compare_exchange_weak(old, value, std::memory_order_seq_cst)) {
  }
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
#if defined(__linux__)
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
#else
  word.notify_all();
#endif
}

}  // namespace paceline
