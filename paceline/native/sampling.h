// How sure a draft is, from C++ exactly as from Python.
#pragma once

namespace paceline {

// How likely a token with logit `value` is among n logits, `top` the greatest, at a temperature, before any filter.
double probability_of(const float* logits, int n, float top, float value, double temperature);

}  // namespace paceline
