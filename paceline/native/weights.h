// Weights of tokens as whole numbers, so that a sum of them is the same in any order: a token's probability relative to
// the likeliest one's, in units of 2^-44. The twin of sample/weights.py, to the bit.
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline {

struct Sums {
  int64_t weight, moment;  // moment: weights times depths

  Sums& operator+=(const Sums& other) {
    weight += other.weight, moment += other.moment;
    return *this;
  }
};

struct Split {
  int64_t total, before;
};

// How logits become depths: log2 of a token's probability over that of the likeliest, -64 at the least.
struct Scale {
  float top, factor;

  Scale(float top, double temperature);
  float depth(float x) const {
    // The larger of (x - top) * factor and -64, in whole numbers: a comparison of floats would become a branch.
    float depth = (x - top) * factor;
    uint32_t bits;
    __builtin_memcpy(&bits, &depth, 4);
    bits = bits < 0xc2800000u ? bits : 0xc2800000u;
    __builtin_memcpy(&depth, &bits, 4);
    return depth;
  }
  double distance(float x, double mean) const { return std::fabs(static_cast<double>(depth(x)) - mean); }
};

// What a share of a total is, at least 1 and never more than all.
int64_t share(int64_t total, double part);

// Each token's own.
void weigh(const Scale&, const float* x, int n, Sums* sums);

// Over all tokens, and over those that come before (logit, id).
Split split(const Scale&, const float* x, int n, float logit, int id);

// Over all tokens, with and without moments.
int64_t sum_weights(const Scale&, const float* x, int n);
Sums sum_moments(const Scale&, const float* x, int n);

// One of the buckets 0 to `last` into which depths fall, `steps` per unit, the deepest all into the last.
inline int bucket_at(float depth, float steps, int last) {
  const float at = -depth * steps, most = static_cast<float>(last);
  return static_cast<int>(at < most ? at : most);
}

}  // namespace paceline
