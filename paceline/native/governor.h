// How many threads a forward uses: all of them on a quiet machine, fewer while other programs want the cores.
//
// A thread that loses its core holds up the others, so beside other load fewer threads are often faster. Time lost by
// threads that were ready to run makes the governor step down at once; seconds of forwards of the same kind decide
// whether a step up, tried ever more seldom, pays. Knows neither threads nor clocks: both are arguments.
#pragma once

#include <cstdint>
#include <unordered_map>

namespace paceline {

class Governor {
 public:
  explicit Governor(int most) : most_(most), low_(most), active_(most) {}

  int threads() const { return active_; }      // for the next forward
  bool is_calm() const { return debt_ == 0; }  // no time has been lost lately

  // A forward of this kind (program and rows) took `seconds` on `threads` threads, which together lost `lost` seconds.
  void saw(uint64_t kind, int threads, double seconds, double lost, double now);

 private:
  struct Mean {
    double seconds = 0;
    int count = 0;
  };

  void learn(uint64_t kind, double seconds);
  void judge(uint64_t kind, double seconds, double now);
  void go(int low, int active, double now);

  int most_, low_, active_;                   // active_ > low_: more threads are on trial against what low_ has taken
  std::unordered_map<uint64_t, Mean> means_;  // per kind, with low_ threads
  int learnt_ = 0;
  double debt_ = 0, share_ = 0;                  // time lost and not yet forgiven; threads lost of late
  double spent_ = 0, expected_ = 0, since_ = 0;  // of the trial
  int scored_ = 0, unknown_ = 0;                 // forwards of the trial, by whether low_ has run their kind
  double wait_ = 0, next_ = 0;                   // until the next trial, and when that is
  bool small_ = false;                           // the next trial adds one thread only
};

}  // namespace paceline
