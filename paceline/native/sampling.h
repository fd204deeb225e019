// Drawing from C++ exactly as Python's `draw` does.
#pragma once

#include <cstdint>

namespace paceline {

// A token's law and the key of its noise.
struct Draw {
  double temperature;
  int top_k;
  double top_p, min_p;
  uint64_t seed;
  int64_t position;
};

// The token drawn from n logits; std::domain_error when nothing can be drawn from them.
int draw_from(const float* logits, int n, const Draw& draw);

// How likely a token with logit `value` is among n logits at a temperature, before any filter.
double probability_of(const float* logits, int n, float value, double temperature);

}  // namespace paceline
