#include "pool.h"

#include <pthread.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {
namespace {

constexpr int kSpins = 4000;  // a few tens of microseconds: longer than the gap between two ops
constexpr int kYields = 200;  // then let others have the core

std::atomic<unsigned> forks{0};

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Wait until `value` differs from `old`.
template <class T>
void await_change(std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  for (int i = 0; i < kYields; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

Pool::Pool(int threads) : threads_(threads < 1 ? 1 : threads) { start(); }

void Pool::start() {
  static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)watching;
  forks_ = forks.load();
  const unsigned seen = job_.load(std::memory_order_acquire);
  for (int thread = 1; thread < threads_; ++thread)
    workers_.push_back(std::make_unique<std::thread>([this, thread, seen] { work(thread, seen); }));
}

Pool::~Pool() {
  if (forks_ != forks.load()) {
    for (auto& worker : workers_) (void)worker.release();  // threads of the parent: there is nothing to join
    return;
  }
  stop_ = true;
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (auto& worker : workers_) worker->join();
}

void Pool::parallel(const std::function<void(int)>& body) {
  const std::lock_guard<std::mutex> mine(turn_);
  if (threads_ == 1) {
    body(0);
    return;
  }
  if (forks_ != forks.load(std::memory_order_relaxed)) {  // a forked child has none of its parent's threads
    for (auto& worker : workers_) (void)worker.release();
    workers_.clear();
    arrived_.store(0);
    next_[0].store(0);
    next_[1].store(0);
    start();
  }
  body_ = &body;
  busy_.store(threads_ - 1, std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  body(0);
  int left;
  while ((left = busy_.load(std::memory_order_acquire)) != 0) await_change(busy_, left);
}

void Pool::work(int thread, unsigned seen) {
  for (;;) {
    await_change(job_, seen);
    seen = job_.load(std::memory_order_acquire);
    if (stop_) return;
    (*body_)(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_all();
  }
}

bool Pool::arrive(unsigned phase) {
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) != threads_ - 1) return false;
  arrived_.store(0, std::memory_order_relaxed);
  next_[phase & 1].store(0, std::memory_order_relaxed);
  phase_.store(phase + 1, std::memory_order_release);
  phase_.notify_all();
  return true;
}

void Pool::wait(unsigned phase) { await_change(phase_, phase); }

}  // namespace paceline
