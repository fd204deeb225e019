// A few threads that share numbered tasks, with barriers cheap enough to sit between the ops of a forward pass.
//
// Tasks are handed out from one atomic counter, so that a core taken away by a neighbour slows a forward by its own
// share only. Waiting spins briefly, then yields, then sleeps: a thread that cannot run must not keep others from it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline {

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Run body(thread) once on every thread and wait; callers take turns. Inside it all threads must make the same calls
  // of `share`.
  void parallel(const std::function<void(int)>& body);

  // Inside `parallel`: hand out [0, tasks) in runs of `grain`, call run(begin, end) for each, then meet at a barrier.
  // A thread's first run is fixed, run number `thread`, so that it can be prepared for. Who waits at the barrier calls
  // idle(i) for i = 0, 1, … while that returns true.
  template <class Run, class Idle>
  void share(int thread, int tasks, int grain, Run&& run, Idle&& idle) {
    if (threads_ == 1) {
      if (tasks > 0) run(0, tasks);
      return;
    }
    const unsigned phase = phase_.load(std::memory_order_acquire);
    std::atomic<int>& next = next_[phase & 1];
    int begin = thread * grain;
    while (begin < tasks) {
      run(begin, begin + grain < tasks ? begin + grain : tasks);
      begin = threads_ * grain + next.fetch_add(grain, std::memory_order_relaxed);
    }
    if (arrive(phase)) return;
    for (int i = 0; phase_.load(std::memory_order_acquire) == phase && idle(i); ++i) {
    }
    wait(phase);
  }
  template <class Run>
  void share(int thread, int tasks, int grain, Run&& run) {
    share(thread, tasks, grain, run, [](int) { return false; });
  }

 private:
  bool arrive(unsigned phase);  // true for the last, who opens the next phase
  void wait(unsigned phase);
  void work(int thread, unsigned seen);
  void start();

  int threads_;
  std::vector<std::unique_ptr<std::thread>> workers_;
  const std::function<void(int)>* body_ = nullptr;
  alignas(64) std::atomic<unsigned> job_{0};
  alignas(64) std::atomic<int> busy_{0};
  alignas(64) std::atomic<unsigned> phase_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> next_[2] = {0, 0};
  std::atomic<bool> stop_{false};
  std::mutex turn_;
  unsigned forks_;  // how often the process had been forked when the threads were started
};

}  // namespace paceline
