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

// The maxima of whole blocks.
PACELINE_CLONES void whole_maxima(const float* x, int blocks, int32_t* out) {
  for (int b = 0; b < blocks; ++b) {
    const float* p = x + b * kBlock;
    int32_t best[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      int32_t keys[4];
      for (int i = 0; i < 4; ++i) {
        int32_t bits;
        __builtin_memcpy(&bits, p + kLanes * i + j, 4);
        const int32_t broken = -static_cast<int32_t>((bits & 0x7fffffff) > kInfinity);
        keys[i] = (key_of(p[kLanes * i + j]) & ~broken) | (INT32_MAX & broken);
      }
      const int32_t a = keys[0] > keys[1] ? keys[0] : keys[1], b2 = keys[2] > keys[3] ? keys[2] : keys[3];
      best[j] = a > b2 ? a : b2;
    }
    for (int half = kLanes / 2; half; half /= 2)
      for (int j = 0; j < half; ++j) best[j] = best[j] > best[j + half] ? best[j] : best[j + half];
    out[b] = best[0];
  }
}

// Widens the ends by the keys from `low` to `high`.
PACELINE_CLONES void widen(const float* x, int n, int32_t low, int32_t high, int32_t* ends) {
  int32_t least = ends[0], most = ends[1];
  for (int i = 0; i < n; ++i) {
    const int32_t key = key_of(x[i]);
    const int32_t in = -static_cast<int32_t>((key >= low) & (key <= high));  // a choice would become a branch
    const int32_t below = (key & in) | (INT32_MAX & ~in), above = (key & in) | (INT32_MIN & ~in);
    least = below < least ? below : least;
    most = above > most ? above : most;
  }
  ends[0] = least, ends[1] = most;
}

}  // namespace

void block_maxima(const float* x, int n, int32_t* out) {
  const int whole = n / kBlock;
  whole_maxima(x, whole, out);
  if (n % kBlock == 0) return;
  float padded[kBlock];
  std::fill(std::copy(x + whole * kBlock, x + n, padded), padded + kBlock, -INFINITY);
  whole_maxima(padded, 1, out + whole);
}

Row::Row(const float* x, int n, const int32_t* tokens, const int32_t* maxima) : x_(x), n_(n), tokens_(tokens) {
  if (n < 1) throw std::invalid_argument("a row of logits needs at least one token");
  maxima_.resize(static_cast<size_t>(blocks_of(n)));
  if (maxima) std::copy(maxima, maxima + maxima_.size(), maxima_.begin());
  else block_maxima(x, n, maxima_.data());
  const auto top = std::max_element(maxima_.begin(), maxima_.end());
  if (*top > kInfinity) throw std::domain_error("logits must be numbers, got NaN");
  if (*top == kInfinity) throw std::domain_error("logits must be finite or -inf, got inf");
  if (*top < key_of(-FLT_MAX)) throw std::domain_error("every token is forbidden: all logits are -inf");
  argmax_ = static_cast<int>(top - maxima_.begin()) * kBlock;
  const int end = std::min(argmax_ + kBlock, n);
  while (argmax_ < end && key_of(x[argmax_]) != *top) ++argmax_;
  if (argmax_ == end) throw std::invalid_argument("these are another row's maxima");
}

const float* Row::block(int b, float* padded) const {
  const float *first = x_ + b * kBlock, *end = x_ + n_;
  if (end - first >= kBlock) return first;
  std::fill(std::copy(first, end, padded), padded + kBlock, -INFINITY);
  return padded;
}

std::vector<int> Row::within(uint64_t least, int32_t most) const {
  const Kernels& kernels = noise_kernels();
  const int32_t low = key_in(least);
  const uint32_t last = 0xffffffffu - static_cast<uint32_t>(least);  // of those at `low`, which are in
  const float end = value_of(std::min(most, kInfinity - 1) + 1);
  std::vector<int> ids;
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < low) continue;
    float padded[kBlock];
    int32_t found[kBlock];
    const uint32_t first = static_cast<uint32_t>(b) * kBlock;
    const int count = kernels.reaching(block(static_cast<int>(b), padded), value_of(first <= last ? low : low + 1), end,
                                       static_cast<int>(first), 1, found);
    const bool is_split = first <= last && last - first < kBlock;
    const auto out = [&](int id) { return static_cast<uint32_t>(id) > last && key_of(x_[id]) == low; };
    ids.insert(ids.end(), found, is_split ? std::remove_if(found, found + count, out) : found + count);
  }
  return ids;
}

std::pair<int32_t, int32_t> Row::extent(int32_t low, int32_t high) const {
  int32_t ends[2] = {INT32_MAX, INT32_MIN};
  for (size_t b = 0; b < maxima_.size(); ++b) {
    const int first = static_cast<int>(b) * kBlock;
    if (maxima_[b] >= low) widen(x_ + first, std::min(n_ - first, kBlock), low, high, ends);
  }
  return {ends[0], ends[1]};
}

uint64_t Row::nth(int32_t key, int64_t place) const {
  for (size_t b = 0; b < maxima_.size(); ++b) {
    if (maxima_[b] < key) continue;
    const int first = static_cast<int>(b) * kBlock, end = std::min(n_, first + kBlock);
    for (int id = first; id < end; ++id)
      if (key_of(x_[id]) == key && place-- == 0) return rank(id);
  }
  throw std::logic_error("a row has fewer tokens of a logit than it seemed to");
}

int32_t Row::reached_by(size_t count) const {
  std::vector<int32_t> order(maxima_);
  const auto nth = order.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(order.begin(), nth, order.end(), std::greater<>());
  return *nth;
}

}  // namespace paceline
