// A row of logits in the one order every filter cuts: higher logit first, then the lower id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace paceline {

constexpr int kBlock = 64;  // tokens per block of maxima

// Whole numbers in the order of floats, the two zeros alike.
inline int32_t key_of(float x) {
  x += 0.0f;
  int32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

inline float value_of(int32_t key) {
  const int32_t bits = key ^ ((key >> 31) & 0x7fffffff);
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// Greater is better: logit first, then the lower id.
inline uint64_t rank_of(int32_t key, uint32_t id) {
  return static_cast<uint64_t>(static_cast<uint32_t>(key) ^ 0x80000000u) << 32 | (0xffffffffu - id);
}
inline int32_t key_in(uint64_t rank) { return static_cast<int32_t>(static_cast<uint32_t>(rank >> 32) ^ 0x80000000u); }
inline int id_in(uint64_t rank) { return static_cast<int>(0xffffffffu - static_cast<uint32_t>(rank)); }

// The least key from `low` to `high` for which `holds`, as it does for all above it; it does for `high`.
template <class Holds>
int32_t first_key(int32_t low, int32_t high, const Holds& holds) {
  int64_t from = low, to = high;
  while (from < to) {
    const int64_t middle = from + (to - from) / 2;
    if (holds(static_cast<int32_t>(middle))) to = middle;
    else from = middle + 1;
  }
  return static_cast<int32_t>(from);
}

inline const uint64_t kFinite =
    rank_of(key_of(-std::numeric_limits<float>::max()), 0xffffffffu);  // -inf is never drawn

inline int blocks_of(int n) { return (n + kBlock - 1) / kBlock; }

// out[b] = the largest key of each block of 64; INT32_MAX where a logit is NaN.
void block_maxima(const float* x, int n, int32_t* out);

// A checked row with the largest key of each block of 64. Does not own the logits.
//
// Where a row lacks tokens, `tokens` says which those are that it has, ascending: all that is called an id elsewhere is
// then a place in the row, and only noise, which belongs to tokens, asks for more.
class Row {
 public:
  // Throws std::domain_error if a logit is NaN or +inf, or all are -inf.
  // With the maxima given, the row is not read.
  Row(const float* x, int n, const int32_t* tokens = nullptr, const int32_t* maxima = nullptr);

  const float* x() const { return x_; }
  int size() const { return n_; }
  const int32_t* tokens() const { return tokens_; }
  int token(int id) const { return tokens_ ? tokens_[id] : id; }
  int argmax() const { return argmax_; }
  float top() const { return x_[argmax_]; }
  const std::vector<int32_t>& maxima() const { return maxima_; }
  uint64_t rank(int id) const { return rank_of(key_of(x_[id]), static_cast<uint32_t>(id)); }

  // The 64 logits of a block; in `padded`, -inf behind them, where it is not full.
  const float* block(int b, float* padded) const;
  // The ids, ascending, of all tokens at or above a rank whose key is at most `most`.
  std::vector<int> within(uint64_t least, int32_t most = INT32_MAX) const;
  // The least and the greatest of the keys from `low` to `high`; the other way round if there are none.
  std::pair<int32_t, int32_t> extent(int32_t low, int32_t high) const;
  // The rank of the token that has `place` others of its key before it.
  uint64_t nth(int32_t key, int64_t place) const;
  // A key that at least `count` tokens reach, of no more than there are blocks.
  int32_t reached_by(size_t count) const;

 private:
  const float* x_;
  int n_;
  const int32_t* tokens_;
  std::vector<int32_t> maxima_;
  int argmax_ = 0;
};

}  // namespace paceline
