// Weights of tokens as whole numbers, so that a sum of them is the same in any order: a token's probability relative to
// the likeliest one's, in units of 2^-44. The twin of sample/weights.py, to the bit.
#pragma once

#include <cmath>
#include <cstdint>

namespace paceline {

struct Sums {
  int64_t weight, moment;  // moment: weights times depths
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

// What a share of a total is, at least 1.
int64_t share(int64_t total, double part);

// Each token's weight, and its weight times its depth.
void weigh(const Scale&, const float* x, int n, int64_t* weights, int64_t* moments);

// Over all tokens, and over those that come before (logit, id).
Split split(const Scale&, const float* x, int n, float logit, int id);

// Over all tokens, with and without moments; and, of weights, over those whose depth is nearer to `mean` than `limit`.
int64_t sum_weights(const Scale&, const float* x, int n);
Sums sum_moments(const Scale&, const float* x, int n);
int64_t sum_near(const Scale&, const float* x, int n, double mean, double limit);

}  // namespace paceline
