// The weights of a row's tokens in buckets by depth, from which filters read where they cut; nothing is sorted.
//
// Weights are whole numbers, so the sum of a bucket is exact; where a cut falls into one, its tokens are looked at.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "row.h"
#include "weights.h"

namespace paceline {

class Buckets {
 public:
  enum class Unit { Token, Weight };  // what a token counts for

  // `part` is the share the first cut will leave, which says how deep it lies at most.
  Buckets(const Row&, const Scale&, Unit, double part);

  Sums total() const;
  // Returns the least rank such that the tokens down to it hold `need`, and forgets those below.
  uint64_t cut(int64_t need);
  // Returns the least distance from `mean` such that the tokens up to it hold `need`.
  double reach(double mean, int64_t need) const;

 private:
  static constexpr int kCount = 512;

  // Tokens with one logit.
  struct Group {
    uint64_t rank;  // of the first
    Sums each;
    int64_t count;

    float logit() const { return value_of(key_in(rank)); }
  };

  int of(int32_t key) const { return bucket_at(scale_.depth(value_of(key)), steps_, last_); }
  double edge(int bucket) const { return bucket > last_ ? -64.0 : -static_cast<double>(bucket) / steps_; }
  void fill();
  void add(int first, int n, Sums* sums) const;
  Sums weigh_one(float logit) const;
  std::vector<Group> gather(int first, int last) const;

  const Row& row_;
  Scale scale_;
  uint64_t least_ = kFinite;
  Unit unit_;
  float steps_;  // buckets per unit of depth, a power of two: the edges are exact
  int last_;     // which holds all that is deeper, too
  std::array<Sums, kCount> sums_{};
};

}  // namespace paceline
