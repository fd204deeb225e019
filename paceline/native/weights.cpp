#include "weights.h"

#include <algorithm>
#include <cmath>

#include "clones.h"

namespace paceline {
namespace {

constexpr double kUnit = 0x1p44;
constexpr double kMagic = 6755399441055744.0;  // adding 1.5 * 2^52 rounds to a whole number
constexpr int64_t kMagicBits = 0x4338000000000000;

// 2^depth: a power of two split off, then Taylor's polynomial.
inline float power(float depth) {
  const float shifted = depth + 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
  const float rest = depth - (shifted - 12582912.0f);
  float p = 1.54035304e-4f;
  p = p * rest + 1.33335581e-3f;
  p = p * rest + 9.61812911e-3f;
  p = p * rest + 5.55041087e-2f;
  p = p * rest + 2.40226507e-1f;
  p = p * rest + 6.93147181e-1f;
  p = p * rest + 1.0f;
  uint32_t bits, exponent;
  __builtin_memcpy(&bits, &p, 4);
  __builtin_memcpy(&exponent, &shifted, 4);  // the power sits in its lowest bits
  bits += exponent << 23;
  __builtin_memcpy(&p, &bits, 4);
  return p;
}

inline int64_t whole(double x) {
  const double shifted = x * kUnit + kMagic;
  int64_t bits;
  __builtin_memcpy(&bits, &shifted, 8);
  return bits - kMagicBits;
}

}  // namespace

Scale::Scale(float top, double temperature)
    : top(top), factor(static_cast<float>(std::min(std::max(1.4426950408889634 / temperature, 1e-37), 1e37))) {}

int64_t share(int64_t total, double part) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(part * static_cast<double>(total))), 1, total);
}

PACELINE_CLONES void weigh(const Scale& given, const float* x, int n, Sums* sums) {
  const Scale scale = given;
  for (int i = 0; i < n; ++i) {
    const float depth = scale.depth(x[i]);
    const double real = power(depth);
    sums[i] = {whole(real), whole(real * static_cast<double>(depth))};
  }
}

PACELINE_CLONES Split split(const Scale& given, const float* x, int n, float logit, int id) {
  const Scale scale = given;
  int64_t total = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t weight = whole(power(scale.depth(x[i])));
    total += weight;
    before += weight & -static_cast<int64_t>((x[i] > logit) | ((x[i] == logit) & (i < id)));
  }
  return {total, before};
}

PACELINE_CLONES int64_t sum_weights(const Scale& given, const float* x, int n) {
  const Scale scale = given;
  int64_t sum = 0;
  for (int i = 0; i < n; ++i) sum += whole(power(scale.depth(x[i])));
  return sum;
}

PACELINE_CLONES Sums sum_moments(const Scale& given, const float* x, int n) {
  const Scale scale = given;
  int64_t weight = 0, moment = 0;
  for (int i = 0; i < n; ++i) {
    const float depth = scale.depth(x[i]);
    const double real = power(depth);
    weight += whole(real);
    moment += whole(real * static_cast<double>(depth));
  }
  return {weight, moment};
}

}  // namespace paceline
