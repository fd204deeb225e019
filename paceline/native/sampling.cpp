// Drawing a token from a row of logits: greedy, or by Gumbel noise keyed by (seed, position, token).
//
// The law is: temperature, then top-k, top-p, min-p; ties go to the lower id. Each filter keeps a prefix of one order
// (higher logit first, then lower id), so a filtered law is one cut in that order. Every bound below only skips tokens
// that cannot win: the result is that of sample/draw.py's plain twin, which looks at everything.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "sampling.h"

namespace nb = nanobind;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PACELINE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PACELINE_CLONES
#endif

namespace paceline {
namespace {

constexpr int kBlock = 64;  // tokens per block of maxima, and per batch of noise
constexpr int kLanes = 16;
constexpr int32_t kInfinity = 0x7f800000;

// A draw takes the best instruction set's noise whatever PACELINE_ISA says: words are whole-number arithmetic, the same
// on every path, which tests/native/test_noise_isas.py shows.
const Kernels& noise_kernels(const std::string& isa = "") {
  static const std::vector<const Kernels*> available = available_kernels();
  if (isa.empty()) return *available.front();
  for (const Kernels* kernels : available)
    if (isa == kernels->name) return *kernels;
  throw std::invalid_argument("this processor does not run `" + isa + "`");
}

void noise(const Kernels& kernels, const Draw& d, int block, uint32_t* words, uint32_t stream = 0) {
  kernels.philox(d.seed, stream, static_cast<uint64_t>(d.position), static_cast<uint32_t>(block * (kBlock / 4)), words);
}

// Where a token of a block finds its word.
int place(int token) { return token % 4 * 16 + token % kBlock / 4; }

double gumbel(uint32_t word) { return -std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

// Whole numbers in the order of floats, the two zeros alike.
inline int32_t key_of(float x) {
  x += 0.0f;
  int32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

float value_of(int32_t key) {
  const int32_t bits = key ^ ((key >> 31) & 0x7fffffff);
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

// Greater is better: logit first, then the lower id.
uint64_t rank_of(int32_t key, uint32_t id) {
  return static_cast<uint64_t>(static_cast<uint32_t>(key) ^ 0x80000000u) << 32 | (0xffffffffu - id);
}
int32_t key_in(uint64_t rank) { return static_cast<int32_t>(static_cast<uint32_t>(rank >> 32) ^ 0x80000000u); }
int id_in(uint64_t rank) { return static_cast<int>(0xffffffffu - static_cast<uint32_t>(rank)); }

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

PACELINE_CLONES bool any_reaches(const uint32_t* words, uint32_t least) {
  uint32_t found = 0;
  for (int i = 0; i < kBlock; ++i) found |= words[i] >= least ? 1u : 0u;
  return found != 0;
}

// exp(t) for t <= 0 to 1e-14: a power of two split off, then Taylor's polynomial.
inline double exp_below(double t) {
  t = t < -700.0 ? -700.0 : t;
  const double shifted = t * 1.4426950408889634 + 6755399441055744.0;  // adding 1.5 * 2^52 rounds to a whole number
  const double k = shifted - 6755399441055744.0;
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
  int64_t bits;
  __builtin_memcpy(&bits, &shifted, 8);  // k sits in its lowest bits
  bits = (bits + 1023) << 52;
  double scale;
  __builtin_memcpy(&scale, &bits, 8);
  return p * scale;
}

// weights[i] = exp((x[i] - top) * inverse).
PACELINE_CLONES void weigh(const float* x, int n, double top, double inverse, double* weights) {
  for (int i = 0; i < n; ++i) weights[i] = exp_below((static_cast<double>(x[i]) - top) * inverse);
}

PACELINE_CLONES double sum_weights(const float* x, int n, double top, double inverse) {
  double lanes[kLanes] = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int j = 0; j < kLanes; ++j) lanes[j] += exp_below((static_cast<double>(x[i + j]) - top) * inverse);
  for (; i < n; ++i) lanes[0] += exp_below((static_cast<double>(x[i]) - top) * inverse);
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

class Row {
 public:
  Row(const float* x, int n) : x_(x), n_(n), maxima_(static_cast<size_t>((n + kBlock - 1) / kBlock)) {
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

  int draw(const Draw& d) const { return d.temperature <= 1e-5 ? argmax_ : race(d, cut(d)); }

  // The law's tokens, best first.
  std::vector<int> survivors(const Draw& d) const {
    std::vector<uint64_t> ranks = reaching(d.temperature <= 1e-5 ? rank(argmax_) : cut(d));
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    std::vector<int> ids;
    for (uint64_t r : ranks) ids.push_back(id_in(r));
    return ids;
  }

 private:
  uint64_t rank(int id) const { return rank_of(key_of(x_[id]), static_cast<uint32_t>(id)); }

  // The ranks of all tokens at or above a rank.
  std::vector<uint64_t> reaching(uint64_t least) const {
    std::vector<uint64_t> ranks;
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < key_in(least)) continue;
      const int first = static_cast<int>(b) * kBlock, end = std::min(n_, first + kBlock);
      for (int id = first; id < end; ++id)
        if (const uint64_t r = rank(id); r >= least) ranks.push_back(r);
    }
    return ranks;
  }

  // The least rank that survives the filters.
  uint64_t cut(const Draw& d) const {
    uint64_t least = rank_of(key_of(-FLT_MAX), 0xffffffffu);  // -inf is never drawn
    std::vector<uint64_t> kept;
    if (d.top_k > 0 && d.top_k < n_) {
      kept = best(static_cast<size_t>(d.top_k));
      std::erase_if(kept, [least](uint64_t r) { return r < least; });
      least = std::max(least, *std::min_element(kept.begin(), kept.end()));
    }
    if (d.top_p < 1.0) least = std::max(least, nucleus(d, std::move(kept)));
    if (d.min_p > 0.0) least = std::max(least, rank_of(min_p_floor(d), 0xffffffffu));
    return least;
  }

  // The `count` < V tokens of highest rank, in any order.
  std::vector<uint64_t> best(size_t count) const {
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

  // The last rank of the smallest prefix that holds top_p of the mass of `among`, or of the whole row if that is empty.
  uint64_t nucleus(const Draw& d, std::vector<uint64_t> among) const {
    const double top = x_[argmax_], inverse = 1.0 / d.temperature;
    double total = 0;
    const bool whole = among.empty();
    if (whole) {
      total = sum_weights(x_, n_, top, inverse);
      // All tokens lighter than (1 - p) total / V weigh less than (1 - p) total together: the prefix ends above them.
      const double lightest = (1.0 - d.top_p) * total / n_ * 0.999;
      among = reaching(rank_of(key_of(floor_of(top + d.temperature * std::log(lightest))), 0xffffffffu));
    }
    std::vector<float> logits(among.size());
    std::vector<double> weights(among.size());
    for (size_t i = 0; i < among.size(); ++i) logits[i] = value_of(key_in(among[i]));
    weigh(logits.data(), static_cast<int>(logits.size()), top, inverse, weights.data());
    if (!whole)
      for (double weight : weights) total += weight;
    double need = d.top_p * total;

    // The prefix ends in the first of these equal slices of logits at which the mass suffices; only its items matter.
    constexpr int kSlices = 1024;
    const double lowest = *std::min_element(logits.begin(), logits.end());
    const double scale = lowest < top ? (kSlices - 1) / (top - lowest) : 0.0;
    const auto slice_of = [&](float x) { return static_cast<int>((top - static_cast<double>(x)) * scale); };
    std::vector<double> masses(kSlices);
    for (size_t i = 0; i < weights.size(); ++i) masses[static_cast<size_t>(slice_of(logits[i]))] += weights[i];
    int slice = 0;
    const int last = slice_of(static_cast<float>(lowest));
    while (slice < last && masses[static_cast<size_t>(slice)] < need) need -= masses[static_cast<size_t>(slice++)];
    struct Item {
      uint64_t rank;
      double weight;
    };
    std::vector<Item> items;
    for (size_t i = 0; i < weights.size(); ++i)
      if (slice_of(logits[i]) == slice) items.push_back({among[i], weights[i]});

    // Halve the range that holds the end until one item is left.
    auto low = items.begin(), high = items.end();
    while (high - low > 1) {
      const auto middle = low + (high - low - 1) / 2;
      std::nth_element(low, middle, high, [](const Item& a, const Item& b) { return a.rank > b.rank; });
      double mass = 0;
      for (auto item = low; item <= middle; ++item) mass += item->weight;
      if (mass >= need) {
        high = middle + 1;
      } else {
        need -= mass;
        low = middle + 1;
      }
    }
    return low->rank;
  }

  // A float at or below x, above -inf.
  static float floor_of(double x) {
    if (!(x > -FLT_MAX)) return -FLT_MAX;
    const float nearest = static_cast<float>(x);
    return std::max(std::nextafter(nearest, -INFINITY), -FLT_MAX);
  }

  // The least key whose weight is at least min_p; weights never fall as keys rise.
  int32_t min_p_floor(const Draw& d) const {
    const double top = x_[argmax_], inverse = 1.0 / d.temperature;
    int64_t low = key_of(-FLT_MAX), high = key_of(x_[argmax_]);
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const double x = value_of(static_cast<int32_t>(middle));
      if (std::exp((x - top) * inverse) >= d.min_p) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return static_cast<int32_t>(low);
  }

  // argmax of logit / temperature + noise over the tokens at or above a rank.
  int race(const Draw& d, uint64_t least_rank) const {
    static const Kernels& kernels = noise_kernels();
    uint32_t words[kBlock];
    noise(kernels, d, argmax_ / kBlock, words);
    int winner = argmax_;
    double best = static_cast<double>(x_[argmax_]) / d.temperature + gumbel(words[place(argmax_)]);
    const int32_t least_key = key_in(least_rank);
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (maxima_[b] < least_key) continue;
      // With k = 2^32 - word, noise = -log(-log u) <= -log(1 - u) = -log((k - 1/2) / 2^32). So a token that lacks
      // `best - score` wins only if k - 1/2 <= 2^room; the slack covers rounding.
      const double score = static_cast<double>(value_of(maxima_[b])) / d.temperature;
      const double slack = 1e-9 + 1e-15 * (std::fabs(best) + std::fabs(score));
      const double room = 32.0 - (best - score) * 1.4426950408889634 + slack;
      if (room < -1.0) continue;
      const uint32_t least = room >= 31.0 ? 0 : room < 0.0 ? 0xffffffffu : 0u - (2u << static_cast<int>(room));
      noise(kernels, d, static_cast<int>(b), words);
      if (!any_reaches(words, least)) continue;
      const int first = static_cast<int>(b) * kBlock, end = std::min(n_, first + kBlock);
      for (int id = first; id < end; ++id) {
        const uint32_t word = words[place(id)];
        if (word < least || rank(id) < least_rank) continue;
        const double sum = static_cast<double>(x_[id]) / d.temperature + gumbel(word);
        if (sum > best || (sum == best && id < winner)) best = sum, winner = id;
      }
    }
    return winner;
  }

  const float* x_;
  int n_;
  std::vector<int32_t> maxima_;
  int argmax_ = 0;
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

int draw_from(const float* logits, int n, const Draw& draw) { return Row(logits, n).draw(draw); }

double probability_of(const float* logits, int n, float value, double temperature) {
  const double top = *std::max_element(logits, logits + n), inverse = 1.0 / temperature;
  return exp_below((static_cast<double>(value) - top) * inverse) / sum_weights(logits, n, top, inverse);
}

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
        return array_of(
            Row(logits.data(), static_cast<int>(logits.shape(0))).survivors({temperature, top_k, top_p, min_p, 0, 0}));
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "int32 [n], best first: the tokens of the law");
  m.def(
      "probability",
      [](const Logits& logits, float value, double temperature) {
        return probability_of(logits.data(), static_cast<int>(logits.shape(0)), value, temperature);
      },
      "logits"_a, "value"_a, "temperature"_a, "how likely a token with logit `value` is, before any filter");
  m.def(
      "philox",
      [](uint64_t seed, uint32_t stream, int64_t position, int count, const std::string& isa) {
        const Kernels& kernels = noise_kernels(isa);
        std::vector<uint32_t> words(static_cast<size_t>(count));
        uint32_t block[kBlock];
        for (int v = 0; v < count; ++v) {
          if (v % kBlock == 0) noise(kernels, {0, 0, 0, 0, seed, position}, v / kBlock, block, stream);
          words[static_cast<size_t>(v)] = block[place(v)];
        }
        return array_of(words);
      },
      "seed"_a, "stream"_a, "position"_a, "count"_a, "isa"_a = "", "uint32 [count]: the word of each token");
}

}  // namespace paceline
