#include "row.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "clones.h"
#include "noise.h"

namespace paceline {
namespace {

constexpr int kLanes = 16;
constexpr int32_t kInfinity = 0x7f800000;

// maxima[b] = largest key of each full block of 64. Returns the largest absolute value's bits: NaN is beyond infinity.
PACELINE_CLONES int32_t block_maxima(const float* x, int n, int32_t* maxima) {
  int32_t sizes[kLanes] = {};
  for (int b = 0; (b + 1) * kBlock <= n; ++b) {
    const float* p = x + b * kBlock;
    int32_t best[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      int32_t keys[4];
      for (int i = 0; i < 4; ++i) {
        int32_t bits;
        __builtin_memcpy(&bits, p + kLanes * i + j, 4);
        bits &= 0x7fffffff;
        sizes[j] = bits > sizes[j] ? bits : sizes[j];
        keys[i] = key_of(p[kLanes * i + j]);
      }
      const int32_t a = keys[0] > keys[1] ? keys[0] : keys[1], b2 = keys[2] > keys[3] ? keys[2] : keys[3];
      best[j] = a > b2 ? a : b2;
    }
    for (int half = kLanes / 2; half; half /= 2)
      for (int j = 0; j < half; ++j) best[j] = best[j] > best[j + half] ? best[j] : best[j + half];
    maxima[b] = best[0];
  }
  return *std::max_element(sizes, sizes + kLanes);
}

}  // namespace

Row::Row(const float* x, int n, const int32_t* tokens)
    : x_(x), n_(n), tokens_(tokens), maxima_(static_cast<size_t>((n + kBlock - 1) / kBlock)) {
  if (n < 1) throw std::invalid_argument("a row of logits needs at least one token");
  int32_t size = block_maxima(x, n, maxima_.data());
  if (n % kBlock) {
    float padded[kBlock];
    std::fill(padded, padded + kBlock, -INFINITY);
    std::copy(x + n / kBlock * kBlock, x + n, padded);
    size = std::max(size, block_maxima(padded, kBlock, &maxima_.back()));
  }
  if (size > kInfinity) throw std::domain_error("logits must be numbers, got NaN");
  const auto top = std::max_element(maxima_.begin(), maxima_.end());
  if (*top == kInfinity) throw std::domain_error("logits must be finite or -inf, got inf");
  if (*top < key_of(-FLT_MAX)) throw std::domain_error("every token is forbidden: all logits are -inf");
  argmax_ = static_cast<int>(top - maxima_.begin()) * kBlock;
  while (key_of(x[argmax_]) != *top) ++argmax_;
}

std::vector<uint64_t> Row::reaching(uint64_t least) const {
  std::vector<uint64_t> ranks;
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < key_in(least)) continue;
    const int first = static_cast<int>(b) * kBlock, end = std::min(n_, first + kBlock);
    for (int id = first; id < end; ++id)
      if (const uint64_t r = rank(id); r >= least) ranks.push_back(r);
  }
  return ranks;
}

std::vector<uint64_t> Row::best(size_t count) const {
  uint64_t least = 0;
  if (count <= maxima_.size()) {
    // The count-th largest block maximum is a floor: at least `count` tokens reach it.
    std::vector<int32_t> order(maxima_);
    const auto nth = order.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(order.begin(), nth, order.end(), std::greater<>());
    least = rank_of(*nth, 0xffffffffu);
  }
  std::vector<uint64_t> ranks = reaching(least);
  std::nth_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count) - 1, ranks.end(),
                   std::greater<>());
  ranks.resize(count);
  return ranks;
}

}  // namespace paceline
