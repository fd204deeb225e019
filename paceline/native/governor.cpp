#include "governor.h"

#include <algorithm>
#include <cmath>

namespace paceline {
namespace {

constexpr double kMuch = 0.010;  // seconds lost that mean contention: two or three slices of a scheduler
constexpr double kOnce = 0.006;  // counted of one forward: a single long interruption is no contention
constexpr double kLeak = 0.1;    // forgiven per second of forwards: rare interruptions are not worth a thread
constexpr double kSoon = 0.25;   // seconds until the first trial; doubled by each that fails
constexpr double kLong = 3;      // seconds between trials at most, thus until all threads are back
constexpr double kCost = 0.03;   // of all time, what failing trials may cost: a dear one is repeated later
constexpr double kFresh = 4;     // seconds for which the times of fewer threads hold
constexpr double kDear = 0.04;   // seconds that a trial may cost before it has been judged
constexpr int kEnough = 3;       // forwards that a judgement takes
constexpr size_t kMostKinds = 64;

}  // namespace

void Governor::go(int low, int active, double now) {
  if (low != low_) {
    means_.clear();
    learnt_ = 0;
  }
  low_ = low;
  active_ = active;
  since_ = now;
  debt_ = spent_ = expected_ = 0;
  scored_ = unknown_ = 0;
}

void Governor::saw(uint64_t kind, int threads, double seconds, double lost, double now) {
  if (most_ == 1 || threads != active_) return;
  debt_ = std::clamp(debt_ + std::min(lost - kLeak * seconds, kOnce), 0.0, 2 * kMuch);
  share_ += 0.3 * (lost / std::max(seconds, 1e-9) - share_);
  if (active_ > low_) return judge(kind, seconds, now);
  learn(kind, seconds);
  if (debt_ >= kMuch && active_ > 1) {
    const int fewer = std::max(1, active_ - std::max(1, static_cast<int>(std::lround(share_))));
    go(fewer, fewer, now);
    wait_ = kSoon;
    next_ = now + wait_;
  } else if (active_ < most_ && now >= next_ && learnt_ >= kEnough) {
    go(low_, small_ ? active_ + 1 : most_, now);
    small_ = !small_;
  }
}

void Governor::learn(uint64_t kind, double seconds) {
  if (means_.size() >= kMostKinds && !means_.count(kind)) means_.clear();
  Mean& mean = means_[kind];
  mean.count = std::min(mean.count + 1, 10);
  mean.seconds += (seconds - mean.seconds) / mean.count;
  ++learnt_;
}

void Governor::judge(uint64_t kind, double seconds, double now) {
  const auto mean = means_.find(kind);
  if (mean == means_.end()) {
    ++unknown_;
  } else {
    ++scored_;
    spent_ += seconds;
    expected_ += mean->second.seconds;
  }
  if (scored_ >= 32) {  // the past fades
    scored_ /= 2;
    spent_ /= 2;
    expected_ /= 2;
  }
  const bool is_dear = scored_ < kEnough && spent_ - expected_ > kDear;
  const bool is_slower = scored_ >= kEnough ? spent_ > expected_ : unknown_ >= kEnough;
  if ((is_dear && debt_ > 0) || (is_slower && debt_ >= kMuch)) {
    wait_ = std::max(std::min(2 * wait_, kLong), std::min((spent_ - expected_) / kCost, 3 * kLong));
    next_ = now + wait_;
    go(low_, low_, now);
  } else if (now - since_ > (debt_ == 0 ? kSoon : kFresh)) {
    wait_ = kSoon;
    next_ = now + wait_;
    go(active_, active_, now);
  }
}

}  // namespace paceline
