#include "pool.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace paceline {
namespace {

constexpr int kMostRuns = 32767;  // 16 bits hold the next run, also after each thread has asked in vain
constexpr int64_t kCalmSpin =
    1'000'000;  // on cores that no other program wants: longer than the gap between two forwards that draft
constexpr int64_t kSpin = 20'000;     // else: a sleeping thread leaves its core to one that was put off its own
constexpr int64_t kGrace = 1'000;     // for a thread to begin its first run before another takes it
constexpr int64_t kLate = 1'000'000;  // waking up takes less unless other programs are on the core
constexpr size_t kPiece = 1024;       // bytes prefetched between two looks at the epoch
constexpr size_t kGracePieces = 8;

std::atomic<unsigned> forks{0};

uint64_t ticket_of(uint32_t epoch, int runs, int next) {
  return uint64_t{epoch} << 32 | static_cast<uint64_t>(runs) << 16 | static_cast<uint64_t>(next);
}
uint32_t epoch_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
int runs_of(uint64_t ticket) { return static_cast<int>(ticket >> 16 & 0xffff); }
int next_of(uint64_t ticket) { return static_cast<int>(ticket & 0xffff); }

void touch(const uint8_t* from) {
  for (size_t line = 0; line < kPiece; line += 64) __builtin_prefetch(from + line, 0, 2);
}

int64_t processor_nanoseconds() {
  timespec spent;
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent) != 0) return 0;
  return int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

// The part a thread takes in a job: time in which it neither ran nor slept is time for which others had its core.
template <class Slot>
class Part {
 public:
  explicit Part(Slot& slot, int64_t late = 0)
      : slot_(slot), start_(nanoseconds_now()), spent_(processor_nanoseconds()), late_(late) {
    slot_.slept = 0;
  }
  ~Part() {
    const int64_t wall = nanoseconds_now() - start_, spent = processor_nanoseconds() - spent_;
    slot_.wall.store(slot_.wall.load(std::memory_order_relaxed) + wall + late_, std::memory_order_relaxed);
    const int64_t lost = std::max(wall - spent - slot_.slept, int64_t{0}) + late_;
    slot_.lost.store(slot_.lost.load(std::memory_order_relaxed) + lost, std::memory_order_relaxed);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 private:
  Slot& slot_;
  int64_t start_, spent_, late_;
};

// One phase on all threads.
class Shared final : public Work {
 public:
  explicit Shared(const std::function<void(int, int)>& run) : run_(run) {}
  void run(int, int begin, int end, int) override { run_(begin, end); }

 private:
  const std::function<void(int, int)>& run_;
};

}  // namespace

Pool::Pool(int threads)
    : threads_(std::clamp(threads, 1, 1024)),
      slots_(new Slot[static_cast<size_t>(threads_)]),
      active_(threads_),
      spin_(kCalmSpin),
      governor_(threads_) {
  start();
}

void Pool::start() {
  static const int watching = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)watching;
  forks_ = forks.load();
  const uint32_t seen = epoch_.load();
  for (int thread = 1; thread < threads_; ++thread)
    workers_.push_back(std::make_unique<std::thread>([this, thread, seen] { work(thread, seen); }));
}

Pool::~Pool() {
  if (forks_ != forks.load()) {
    for (auto& worker : workers_) (void)worker.release();  // threads of the parent: there is nothing to join
    return;
  }
  stop_ = true;
  move_on(epoch_, epoch_of(ticket_.load()) + 1, sleepers_);
  move_on(raised_, raised_.load() + 1, parked_);
  for (auto& worker : workers_) worker->join();
}

// ---- jobs -------------------------------------------------------------------------------------------------------

void Pool::run(Work& work, const std::vector<Phase>& phases, uint64_t kind) {
  const std::lock_guard<std::mutex> mine(turn_);
  const int held = held_.load(), threads = held > 0 ? held : governor_.threads();
  const int64_t start = nanoseconds_now();
  play(work, phases, threads);
  const int64_t end = nanoseconds_now();
  const Contention now = total();
  const double lost = now.lost - seen_.lost;
  seen_ = now;
  if (held > 0) return;
  governor_.saw(kind, threads, static_cast<double>(end - start) * 1e-9, lost, static_cast<double>(end) * 1e-9);
  spin_.store(governor_.is_calm() ? kCalmSpin : kSpin, std::memory_order_relaxed);
}

void Pool::share(int tasks, int grain, const std::function<void(int, int)>& run) {
  const std::lock_guard<std::mutex> mine(turn_);
  Shared work(run);
  if (tasks > 0) play(work, {{tasks, grain}}, threads_);
}

void Pool::play(Work& work, const std::vector<Phase>& phases, int threads) {
  if (phases.empty()) return;
  if (forks_ != forks.load(std::memory_order_relaxed)) {  // a forked child has none of its parent's threads
    for (auto& worker : workers_) (void)worker.release();
    workers_.clear();
    sleepers_.store(0);
    parked_.store(0);
    start();
  }
  use(threads);
  const Part part(slots_[0]);
  if (threads == 1) {
    for (int i = 0; i < static_cast<int>(phases.size()); ++i) {
      work.run(i, 0, phases[static_cast<size_t>(i)].tasks, 0);
      work.finished(i);
    }
    return;
  }
  work_ = &work;
  phases_ = &phases;
  failed_.store(false, std::memory_order_relaxed);
  started_.store(nanoseconds_now(), std::memory_order_relaxed);
  open(epoch_of(ticket_.load(std::memory_order_relaxed)) + 1, 0);
  follow(0);
  if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Pool::use(int threads) {
  const int before = active_.exchange(threads, std::memory_order_seq_cst);
  if (threads > before) move_on(raised_, raised_.load() + 1, parked_);
}

Contention Pool::total() const {
  int64_t wall = 0, lost = 0;
  for (int thread = 0; thread < threads_; ++thread) {
    wall += slots_[static_cast<size_t>(thread)].wall.load(std::memory_order_relaxed);
    lost += slots_[static_cast<size_t>(thread)].lost.load(std::memory_order_relaxed);
  }
  return {static_cast<double>(wall) * 1e-9, static_cast<double>(lost) * 1e-9};
}

Contention Pool::contention() {
  const std::lock_guard<std::mutex> mine(asking_);
  const Contention now = total(), before = std::exchange(asked_, now);
  return {now.wall - before.wall, now.lost - before.lost};
}

// ---- threads ----------------------------------------------------------------------------------------------------

void Pool::work(int thread, uint32_t seen) {
  Slot& slot = slots_[static_cast<size_t>(thread)];
  while (!stop_) {
    const uint32_t raised = raised_.load(std::memory_order_seq_cst);
    if (thread >= active_.load(std::memory_order_seq_cst)) {
      if (!stop_) sleep(raised_, raised, parked_);
      continue;
    }
    const int64_t slept = slot.slept;
    rest(slot, seen, spin_.load(std::memory_order_relaxed));
    seen = epoch_.load(std::memory_order_acquire);
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (stop_ || thread >= active_.load(std::memory_order_relaxed)) continue;
    const int64_t late = slot.slept == slept ? 0 : nanoseconds_now() - started_.load(std::memory_order_relaxed);
    if (runs_of(ticket) == 0 && late < kLate) continue;
    const Part part(slot, late < kLate ? 0 : late);
    seen = follow(thread);
  }
}

// Take part in the job until it is over; returns the last epoch.
uint32_t Pool::follow(int thread) {
  Slot& slot = slots_[static_cast<size_t>(thread)];
  for (;;) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    uint32_t epoch = epoch_of(ticket);
    if (runs_of(ticket) == 0) return epoch;
    Ahead ahead;
    const int count = take(thread, epoch);
    if (count > 0) {
      ahead = work_->ahead(index_, thread);
      disturb(thread);
      finish(epoch, count);
    }
    size_t at = 0;
    const auto fetch = [&](size_t until) {
      for (; at + kPiece <= std::min(until, ahead.bytes) && !is_past(epoch_, epoch); at += kPiece) {
        touch(ahead.first + at);
        if (ahead.second) touch(ahead.second + at);
      }
    };
    fetch(kGracePieces * kPiece);
    if (at > 0 ? is_past(epoch_, epoch) : spin(epoch_, epoch, kGrace)) continue;
    const int left = take_left(thread, epoch);
    if (left > 0) {
      finish(epoch, left);
      continue;  // the phase may be a new one, with more to take
    }
    fetch(ahead.bytes);
    rest(slot, epoch, spin_.load(std::memory_order_relaxed));
  }
}

void Pool::rest(Slot& slot, uint32_t seen, int64_t spinning) {
  if (spin(epoch_, seen, spinning)) return;
  const int64_t start = nanoseconds_now();
  sleep(epoch_, seen, sleepers_);
  slot.slept += nanoseconds_now() - start;
}

// ---- claims -----------------------------------------------------------------------------------------------------

// Claim the run of this number, below threads_, of the phase that is open. The slot is read before the ticket: if it
// still holds the same afterwards, no thread has claimed the run, so the ticket's phase cannot have ended.
bool Pool::claim_first(int run, uint32_t& epoch) {
  Word& first = slots_[static_cast<size_t>(run)].first;
  uint32_t claimed = first.load(std::memory_order_acquire);
  const uint64_t ticket = ticket_.load(std::memory_order_acquire);
  if (run >= runs_of(ticket) || claimed == epoch_of(ticket)) return false;
  disturb(run);
  if (!first.compare_exchange_strong(claimed, epoch_of(ticket), std::memory_order_acq_rel)) return false;
  epoch = epoch_of(ticket);
  return true;
}

// Run what this thread can get, its own first run before others; returns how many runs that were, all of `epoch`.
int Pool::take(int thread, uint32_t& epoch) {
  int count = 0;
  if (claim_first(thread, epoch)) {
    execute(thread, thread);
    ++count;
  }
  for (;;) {
    const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
    if (next_of(ticket) >= runs_of(ticket)) return count;
    epoch = epoch_of(ticket);
    execute(next_of(ticket), thread);
    ++count;
  }
}

// Run the first runs of threads that have not begun.
int Pool::take_left(int thread, uint32_t& epoch) {
  int count = 0;
  for (int i = 1; i <= threads_; ++i) {
    const int run = (thread + i) % threads_;
    if (!claim_first(run, epoch)) continue;
    execute(run, thread);
    ++count;
  }
  return count;
}

void Pool::execute(int run, int thread) {
  disturb(thread);
  if (failed_.load(std::memory_order_relaxed)) return;  // the job will throw: its runs are only counted
  const int begin = run * phase_.grain, end = std::min(begin + phase_.grain, phase_.tasks);
  try {
    work_->run(index_, begin, end, thread);
  } catch (...) {
    if (!failed_.exchange(true)) failure_ = std::current_exception();
  }
}

// Count runs of this thread as done; the thread that completes the phase opens the next.
void Pool::finish(uint32_t epoch, int count) {
  const int runs = runs_, index = index_;  // the claims being counted keep the phase open: read before
  if (done_.fetch_add(count, std::memory_order_acq_rel) + count != runs) return;
  if (!failed_.load(std::memory_order_relaxed)) work_->finished(index);
  open(epoch + 1, index + 1);
}

// From the ticket on, the phase can be completed by others before this thread goes on: `epoch_` may be past it by then.
void Pool::open(uint32_t epoch, int index) {
  done_.store(0, std::memory_order_relaxed);
  runs_ = 0;
  if (index < static_cast<int>(phases_->size())) {
    phase_ = (*phases_)[static_cast<size_t>(index)];
    const auto runs = [this] { return (phase_.tasks + phase_.grain - 1) / phase_.grain; };
    if (runs() > kMostRuns) phase_.grain *= (runs() + kMostRuns - 1) / kMostRuns;
    index_ = index;
    runs_ = runs();
  }
  ticket_.store(ticket_of(epoch, runs_, threads_), std::memory_order_release);
  disturb(index);
  move_on(epoch_, epoch, sleepers_);
}

// ---- tests ------------------------------------------------------------------------------------------------------

void Pool::disturb(int thread) const {
  const int most = jitter_.load(std::memory_order_relaxed);
  if (most == 0) return;
  thread_local uint32_t state = 2463534242u * static_cast<uint32_t>(2 * thread + 1);
  for (int shift : {13, -17, 5}) state ^= shift > 0 ? state << shift : state >> -shift;
  if (state % 4 == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(state / 4 % static_cast<uint32_t>(most + 1)));
  else if (state % 4 == 1) std::this_thread::yield();
}

}  // namespace paceline
