// Drawing a token from a row of logits: greedy, or by Gumbel noise keyed by (seed, position, token).
//
// The law is: temperature, then top-k, top-p, min-p; ties go to the lower id. Every bound below only skips tokens that
// cannot win, so the result is that of sample/draw.py's plain twin, which looks at everything.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "dispatch.h"

namespace nb = nanobind;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PACELINE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PACELINE_CLONES
#endif

namespace paceline {
namespace {

constexpr int kBlock = 64;                  // tokens per block of maxima, and per batch of noise
constexpr double kMostNoise = 22.873857;    // -log(-log(1 - 2^-33)) rounded up: no draw of Gumbel noise exceeds it

struct Draw {
  double temperature;
  int top_k;
  double top_p, min_p;
  uint64_t seed;
  int64_t position;
};

// The best instruction set's noise: its words are the same on every one.
void noise(uint64_t seed, uint32_t stream, int64_t position, int block, uint32_t* words) {
  static const Kernels* kernels = available_kernels().front();
  kernels->philox(seed, stream, static_cast<uint64_t>(position), static_cast<uint32_t>(block * (kBlock / 4)), words);
}

// Where a token of a block finds its word.
int place(int token) { return token % 4 * 16 + token % kBlock / 4; }

double gumbel(uint32_t word) { return -std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

// The least word whose Gumbel noise may reach `noise`, with a margin far above rounding error.
uint32_t least_word(double noise) {
  if (!(noise > -3.0)) return 0;
  const double word = std::exp(-std::exp(1e-6 - noise)) * 0x1p32 - 2.0;
  return word <= 0 ? 0 : word >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(word);
}

PACELINE_CLONES bool any_reaches(const uint32_t* words, uint32_t least) {
  int found = 0;
  for (int i = 0; i < kBlock; ++i) found |= words[i] >= least;
  return found;
}

// maxima[b] = largest of each block of 64; returns whether any value is NaN.
PACELINE_CLONES bool block_maxima(const float* x, int n, float* maxima) {
  int nan = 0;
  for (int b = 0; b * kBlock < n; ++b) {
    const int end = std::min(n - b * kBlock, kBlock);
    float best = -INFINITY;
    const float* p = x + b * kBlock;
    if (end == kBlock) {
      float lanes[16];
      for (int i = 0; i < 16; ++i) lanes[i] = -INFINITY;
      for (int i = 0; i < kBlock; i += 16)
        for (int j = 0; j < 16; ++j) {
          lanes[j] = p[i + j] > lanes[j] ? p[i + j] : lanes[j];
          nan |= p[i + j] != p[i + j];
        }
      for (int i = 0; i < 16; ++i) best = lanes[i] > best ? lanes[i] : best;
    } else {
      for (int i = 0; i < end; ++i) {
        best = p[i] > best ? p[i] : best;
        nan |= p[i] != p[i];
      }
    }
    maxima[b] = best;
  }
  return nan;
}

// Sum of exp((x - top) / temperature): powers of two split off, then a polynomial good to 1e-13.
PACELINE_CLONES double sum_exp(const float* x, int n, double top, double inverse) {
  double lanes[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  const auto term = [top, inverse](float value) {
    double t = (static_cast<double>(value) - top) * inverse;
    t = t < -700.0 ? -700.0 : t;
    const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
    const double k = (t * 1.4426950408889634 + magic) - magic;
    const double r = (t - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const int64_t bits = (static_cast<int64_t>(static_cast<int32_t>(k)) + 1023) << 52;
    double scale;
    __builtin_memcpy(&scale, &bits, 8);
    return p * scale;
  };
  int i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) lanes[j] += term(x[i + j]);
  for (; i < n; ++i) lanes[0] += term(x[i]);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

class Row {
 public:
  Row(const float* x, int n) : x_(x), n_(n), maxima_(static_cast<size_t>((n + kBlock - 1) / kBlock)) {
    if (n < 1) throw std::invalid_argument("a row of logits needs at least one token");
    if (block_maxima(x, n, maxima_.data())) throw std::domain_error("logits must be numbers, got NaN");
    top_block_ = static_cast<int>(std::max_element(maxima_.begin(), maxima_.end()) - maxima_.begin());
    const float* block = x + top_block_ * kBlock;
    argmax_ = top_block_ * kBlock;
    while (*block != maxima_[static_cast<size_t>(top_block_)]) ++block, ++argmax_;
    if (x[argmax_] == -INFINITY) throw std::domain_error("every token is forbidden: all logits are -inf");
  }

  int argmax() const { return argmax_; }

  // The `count` tokens of highest logit, best first, ties by id.
  std::vector<int> best(int count) const {
    std::vector<int> ids;
    if (count < static_cast<int>(maxima_.size())) {
      // The count-th largest block maximum is a floor: at least `count` tokens reach it.
      std::vector<float> order(maxima_);
      std::nth_element(order.begin(), order.begin() + count - 1, order.end(), std::greater<>());
      const float floor = order[static_cast<size_t>(count - 1)];
      for (size_t b = 0; b < maxima_.size(); ++b)
        if (maxima_[b] >= floor)
          for (int v = static_cast<int>(b) * kBlock; v < std::min(n_, static_cast<int>(b + 1) * kBlock); ++v)
            if (x_[v] >= floor) ids.push_back(v);
    } else {
      ids.resize(static_cast<size_t>(n_));
      std::iota(ids.begin(), ids.end(), 0);
    }
    const auto better = [this](int a, int b) { return x_[a] != x_[b] ? x_[a] > x_[b] : a < b; };
    const size_t keep = std::min(ids.size(), static_cast<size_t>(count));
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(keep), ids.end(), better);
    ids.resize(keep);
    while (!ids.empty() && x_[ids.back()] == -INFINITY) ids.pop_back();
    return ids;
  }

  // The law's tokens, best first; only for laws with a filter.
  std::vector<int> survivors(const Draw& d) const {
    const double top = x_[argmax_], inverse = 1.0 / d.temperature;
    const auto weight = [&](int v) { return std::exp((static_cast<double>(x_[v]) - top) * inverse); };
    std::vector<int> ids;
    if (d.top_k > 0 && d.top_k < n_) ids = best(d.top_k);
    if (d.top_p < 1.0) {
      double total = 0;
      if (!ids.empty())
        for (int v : ids) total += weight(v);
      else
        total = sum_exp(x_, n_, top, inverse);
      const bool all = !ids.empty();
      int count = all ? static_cast<int>(ids.size()) : 64;
      if (!all) ids = best(std::min(count, n_));
      double mass = 0;
      size_t kept = 0;
      for (;;) {
        while (kept < ids.size() && mass < d.top_p * total) mass += weight(ids[kept++]);
        if (mass >= d.top_p * total || all || count >= n_) break;
        count = std::min(count * 8, n_);
        ids = best(count);
      }
      ids.resize(std::max<size_t>(kept, 1));
    }
    if (d.min_p > 0.0) {
      if (ids.empty()) {
        // weight >= min_p  <=>  x >= top + temperature * log(min_p); the exact test below decides at the edge.
        const float floor = static_cast<float>(top + d.temperature * std::log(d.min_p) - 1e-3 * d.temperature - 1e-3);
        for (int v = 0; v < n_; ++v)
          if (x_[v] >= floor) ids.push_back(v);
      }
      ids.erase(std::remove_if(ids.begin(), ids.end(), [&](int v) { return weight(v) < d.min_p; }), ids.end());
    }
    return ids;
  }

  int draw(const Draw& d) const {
    if (d.temperature <= 1e-5) return argmax_;
    if ((d.top_k > 0 && d.top_k < n_) || d.top_p < 1.0 || d.min_p > 0.0) return race(survivors(d), d);
    return race(d);
  }

 private:
  int race(const std::vector<int>& ids, const Draw& d) const {
    int winner = ids[0];
    double best = -INFINITY;
    uint32_t words[kBlock];
    for (int v : ids) {
      noise(d.seed, 0, d.position, v / kBlock, words);
      const double score = static_cast<double>(x_[v]) / d.temperature + gumbel(words[place(v)]);
      if (score > best || (score == best && v < winner)) best = score, winner = v;
    }
    return winner;
  }

  int race(const Draw& d) const {
    int winner = -1;
    double best = -INFINITY;
    const auto visit = [&](int b) {
      uint32_t words[kBlock];
      noise(d.seed, 0, d.position, b, words);
      // No token of the block wins unless its noise makes up for what the block's best logit lacks.
      const uint32_t least = least_word(best - static_cast<double>(maxima_[static_cast<size_t>(b)]) / d.temperature);
      const int first = b * kBlock, end = std::min(n_ - first, kBlock);
      if (!any_reaches(words, least)) return;
      for (int i = 0; i < end; ++i) {
        const uint32_t word = words[place(i)];
        if (word < least) continue;
        const double score = static_cast<double>(x_[first + i]) / d.temperature + gumbel(word);
        if (score > best || (score == best && first + i < winner)) best = score, winner = first + i;
      }
    };
    visit(top_block_);
    for (size_t b = 0; b < maxima_.size(); ++b)
      if (static_cast<int>(b) != top_block_ && static_cast<double>(maxima_[b]) / d.temperature + kMostNoise >= best)
        visit(static_cast<int>(b));
    return winner;
  }

  const float* x_;
  int n_;
  std::vector<float> maxima_;
  int top_block_ = 0, argmax_ = 0;
};

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> array_of(const std::vector<T>& values) {
  T* copy = new T[values.size()];
  std::copy(values.begin(), values.end(), copy);
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy, {values.size()}, owner);
}

}  // namespace

void bind_sampling(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "draw",
      [](const Logits& logits, double temperature, int top_k, double top_p, double min_p, uint64_t seed,
         int64_t position) {
        nb::gil_scoped_release release;
        return Row(logits.data(), static_cast<int>(logits.shape(0)))
            .draw({temperature, top_k, top_p, min_p, seed, position});
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "position"_a);
  m.def(
      "survivors",
      [](const Logits& logits, double temperature, int top_k, double top_p, double min_p) {
        return array_of(Row(logits.data(), static_cast<int>(logits.shape(0)))
                            .survivors({temperature, top_k, top_p, min_p, 0, 0}));
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "int32 [n], best first; empty when nothing filters");
  m.def(
      "philox",
      [](uint64_t seed, uint32_t stream, int64_t position, int count) {
        std::vector<uint32_t> words(static_cast<size_t>(count));
        uint32_t block[kBlock];
        for (int v = 0; v < count; ++v) {
          if (v % kBlock == 0) noise(seed, stream, position, v / kBlock, block);
          words[static_cast<size_t>(v)] = block[place(v)];
        }
        return array_of(words);
      },
      "seed"_a, "stream"_a, "position"_a, "count"_a, "uint32 [count]: the word of each token");
}

}  // namespace paceline
