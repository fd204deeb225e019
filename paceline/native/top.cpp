// The few largest logits of a row, at little more than the cost of reading it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cfloat>
#include <stdexcept>
#include <vector>

#include "clones.h"

namespace nb = nanobind;

namespace paceline {
namespace {

constexpr int kBlock = 64, kLanes = 16, kMost = 64;

// The largest of each full block; NaN is passed over.
PACELINE_CLONES void block_maxima(const float* x, int blocks, float* maxima) {
  for (int b = 0; b < blocks; ++b) {
    const float* p = x + b * kBlock;
    float best[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      float values[4];
      for (int i = 0; i < 4; ++i) {
        const float value = p[kLanes * i + j];
        values[i] = value >= -FLT_MAX ? value : -FLT_MAX;
      }
      const float a = values[0] > values[1] ? values[0] : values[1], c = values[2] > values[3] ? values[2] : values[3];
      best[j] = a > c ? a : c;
    }
    for (int half = kLanes / 2; half; half /= 2)
      for (int j = 0; j < half; ++j) best[j] = best[j] > best[j + half] ? best[j] : best[j + half];
    maxima[b] = best[0];
  }
}

// The best few so far, best first; ties go to whoever came first, which is the lower id.
struct Best {
  int most, count = 0;
  float values[kMost];
  int ids[kMost];

  float least() const { return count < most ? -FLT_MAX : values[count - 1]; }

  void add(float value, int id) {
    if (!(value >= -FLT_MAX) || (count == most && !(value > values[count - 1]))) return;
    int place = count < most ? count++ : count - 1;
    for (; place > 0 && values[place - 1] < value; --place)
      values[place] = values[place - 1], ids[place] = ids[place - 1];
    values[place] = value;
    ids[place] = id;
  }
};

void top(const float* x, int n, int k, std::vector<float>& maxima, int32_t* out) {
  const int blocks = n / kBlock;
  maxima.resize(static_cast<size_t>(blocks));
  block_maxima(x, blocks, maxima.data());
  Best tops{k, 0, {}, {}};  // k tokens reach the k-th largest block maximum
  for (int b = 0; b < blocks; ++b) tops.add(maxima[static_cast<size_t>(b)], b);
  const float floor = tops.least();
  Best best{k, 0, {}, {}};
  for (int b = 0; b < blocks; ++b)
    if (maxima[static_cast<size_t>(b)] >= floor)
      for (int id = b * kBlock; id < (b + 1) * kBlock; ++id) best.add(x[id], id);
  for (int id = blocks * kBlock; id < n; ++id) best.add(x[id], id);
  for (int rank = 0; rank < k; ++rank) out[rank] = rank < best.count ? best.ids[rank] : -1;
}

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_top(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "top",
      [](const Logits& logits, const Rows& rows, int k) {
        if (k < 1 || k > kMost) throw std::invalid_argument("k must be from 1 to 64");
        const int n = static_cast<int>(logits.shape(1));
        for (size_t i = 0; i < rows.shape(0); ++i)
          if (rows(i) < 0 || static_cast<size_t>(rows(i)) >= logits.shape(0))
            throw std::invalid_argument("no such row of logits");
        int32_t* out = new int32_t[rows.shape(0) * static_cast<size_t>(k)];
        nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
        std::vector<float> maxima;
        for (size_t i = 0; i < rows.shape(0); ++i)
          top(logits.data() + static_cast<size_t>(rows(i)) * static_cast<size_t>(n), n, k, maxima,
              out + i * static_cast<size_t>(k));
        return nb::ndarray<nb::numpy, int32_t, nb::ndim<2>>(out, {rows.shape(0), static_cast<size_t>(k)}, owner);
      },
      "logits"_a, "rows"_a, "k"_a,
      "int32 [n, k]: the ids of each row's largest logits, best first; -1 where there are fewer");
}

}  // namespace paceline
