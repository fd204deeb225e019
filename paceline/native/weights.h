// Weights of tokens as whole numbers, so that a sum of them is the same in any order: a token's probability relative to
// the likeliest one's, in units of 2^-44. The twin of sample/weights.py, to the bit.
#pragma once

#include <cstdint>

namespace paceline {

struct Sums {
  int64_t weight, moment;  // moment: weights times depths
};

// How logits become depths: log2 of a token's probability over that of the likeliest, -64 at the least.
struct Scale {
  float top, factor;

  Scale(float top, double temperature);
  float depth(float x) const {
    const float depth = (x - top) * factor;
    return depth > -64.0f ? depth : -64.0f;
  }
  double distance(float x, double mean) const {
    const double off = static_cast<double>(depth(x)) - mean;
    return off < 0 ? -off : off;
  }
};

// What a share of a total is, at least 1.
int64_t share(int64_t total, double part);

// The weight of one token.
Sums weight_of(const Scale&, float x);

// Over all tokens, or those that come before (logit, id).
int64_t sum_weights(const Scale&, const float* x, int n);
int64_t sum_before(const Scale&, const float* x, int n, float logit, int id);

// Over all tokens; or, of weights alone, over those whose depth is nearer to `mean` than `limit`.
Sums sum_moments(const Scale&, const float* x, int n);
int64_t sum_near(const Scale&, const float* x, int n, double mean, double limit);

}  // namespace paceline
