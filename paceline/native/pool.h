// A few threads that share the numbered tasks of a job's phases, cheap enough to sit between the ops of a forward.
//
// A phase is over when its tasks are done, not when the threads have arrived: a thread that is off its core and holds
// no task delays none, and a thread that comes late joins wherever the job stands. Tasks are claimed in runs.
// Claims need no lock and no memory of the job: the ticket holds the phase's number, how many runs it has and the next
// one to take, so a straggler can only find a run of the phase that is open, or none. An unfinished claim keeps its
// phase open and the job alive; without one a thread touches nothing that belongs to a job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "governor.h"
#include "wait.h"

namespace paceline {

struct Phase {
  int tasks, grain;  // tasks > 0; a run is `grain` of them, the last one fewer
};

// Memory that a thread will read in a later phase. It is only ever prefetched, so it may be gone by then.
struct Ahead {
  const uint8_t *first = nullptr, *second = nullptr;  // second may be absent
  size_t bytes = 0;                                   // of each
};

class Work {
 public:
  virtual ~Work() = default;
  virtual void run(int phase, int begin, int end, int thread) = 0;
  // What `thread` shall fetch when it has nothing left to do in this phase; its first run of a phase is run `thread`.
  virtual Ahead ahead(int phase, int thread) const {
    (void)phase, (void)thread;
    return {};
  }
  virtual void finished(int phase) { (void)phase; }  // called by one thread, before the next phase begins
};

// Thread seconds within jobs: from the start to the end of each thread's part, and of these, ready to run but off core.
struct Contention {
  double wall = 0, lost = 0;
};

class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }
  int active() const { return active_.load(std::memory_order_relaxed); }  // used by the latest job

  // Run all phases, one after the other, on as many threads as pay; callers take turns. `kind` is the same for jobs
  // that take the same time. What a run throws is thrown here, after the job.
  void run(Work& work, const std::vector<Phase>& phases, uint64_t kind);

  // Call run(begin, end) for runs of [0, tasks), on all threads whether that pays or not.
  void share(int tasks, int grain, const std::function<void(int, int)>& run);

  Contention contention();  // since the last question

  // For tests: use `threads` threads from now on (0: as many as pay); delay threads at random where order matters.
  void hold(int threads) { held_.store(threads < threads_ ? threads : threads_); }
  void jitter(int microseconds) { jitter_.store(microseconds); }

 private:
  struct alignas(64) Slot {
    Word first{0};  // the last phase whose run of the thread's own number has been claimed
    alignas(64) std::atomic<int64_t> wall{0}, lost{0};  // nanoseconds; written by the thread alone
    int64_t slept = 0;                                  // of its current part
  };

  void start();
  void work(int thread, uint32_t seen);
  void use(int threads);
  void play(Work& work, const std::vector<Phase>& phases, int threads);
  uint32_t follow(int thread);
  bool claim_first(int run, uint32_t& epoch);
  int take(int thread, uint32_t& epoch);
  int take_left(int thread, uint32_t& epoch);
  void execute(int run, int thread);
  void finish(uint32_t epoch, int count);
  void open(uint32_t epoch, int index);
  void rest(Slot& slot, uint32_t seen, int64_t spinning);
  void disturb(int thread) const;
  Contention total() const;

  const int threads_;
  std::vector<std::unique_ptr<std::thread>> workers_;
  std::unique_ptr<Slot[]> slots_;

  // Written when a phase opens; the fields before `epoch_` may be read by a thread with a claim of the phase.
  alignas(64) Work* work_ = nullptr;
  const std::vector<Phase>* phases_ = nullptr;
  int index_ = 0, runs_ = 0;
  Phase phase_{0, 1};
  Word epoch_{1};  // number of the phase, over all jobs; follows the ticket's, for waiting
  alignas(64) std::atomic<uint64_t> ticket_{uint64_t{1} << 32};  // epoch, runs (0 between jobs), next run
  alignas(64) std::atomic<int> done_{0};                         // finished runs of the phase
  alignas(64) std::atomic<int> sleepers_{0};                     // on epoch_
  std::atomic<int> parked_{0};                                   // on raised_
  Word raised_{1};                                               // how often more threads have been called for
  std::atomic<int> active_, held_{0}, jitter_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  std::atomic<int64_t> spin_, started_{0};  // nanoseconds: of a wait, and when the job began
  std::exception_ptr failure_;

  std::mutex turn_;
  Governor governor_;
  Contention seen_, asked_;  // totals after the last job, and at the last question
  std::mutex asking_;
  unsigned forks_;  // how often the process had been forked when the threads were started
};

}  // namespace paceline
