// The few largest logits of a row, at little more than the cost of reading it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <cfloat>
#include <optional>
#include <stdexcept>
#include <vector>

#include "row.h"

namespace nb = nanobind;

namespace paceline {
namespace {

constexpr int kMost = 64;

// The best few so far, best first; ties go to the token that came first, which is the lower id.
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

// `maxima` are the row's, one for each block.
void top(const float* x, int n, int k, const int32_t* maxima, int32_t* out) {
  const int blocks = blocks_of(n);
  Best tops{k, 0, {}, {}};  // k tokens reach the k-th largest block maximum
  for (int b = 0; b < blocks; ++b)
    if (maxima[b] != INT32_MAX) tops.add(value_of(maxima[b]), b);
  const int32_t floor = key_of(tops.least());
  Best best{k, 0, {}, {}};
  for (int b = 0; b < blocks; ++b)
    if (maxima[b] >= floor)
      for (int id = b * kBlock; id < std::min((b + 1) * kBlock, n); ++id) best.add(x[id], id);
  for (int rank = 0; rank < k; ++rank) out[rank] = rank < best.count ? best.ids[rank] : -1;
}

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Maxima = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_top(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "top",
      [](const Logits& logits, const Rows& rows, int k, const std::optional<Maxima>& peaks) {
        if (k < 1 || k > kMost) throw std::invalid_argument("k must be from 1 to 64");
        const int n = static_cast<int>(logits.shape(1));
        for (size_t i = 0; i < rows.shape(0); ++i)
          if (rows(i) < 0 || static_cast<size_t>(rows(i)) >= logits.shape(0))
            throw std::invalid_argument("no such row of logits");
        const size_t blocks = static_cast<size_t>(blocks_of(n));
        if (peaks && (peaks->shape(0) != logits.shape(0) || peaks->shape(1) != blocks))
          throw std::invalid_argument("each row has one peak for each block");
        int32_t* out = new int32_t[rows.shape(0) * static_cast<size_t>(k)];
        nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
        std::vector<int32_t> found(blocks);
        for (size_t i = 0; i < rows.shape(0); ++i) {
          const size_t row = static_cast<size_t>(rows(i));
          const float* x = logits.data() + row * static_cast<size_t>(n);
          if (!peaks) block_maxima(x, n, found.data());
          top(x, n, k, peaks ? peaks->data() + row * blocks : found.data(), out + i * static_cast<size_t>(k));
        }
        return nb::ndarray<nb::numpy, int32_t, nb::ndim<2>>(out, {rows.shape(0), static_cast<size_t>(k)}, owner);
      },
      "logits"_a, "rows"_a, "k"_a, "peaks"_a = nb::none(),
      "int32 [n, k]: the ids of each row's largest logits, best first; -1 where there are fewer");
}

}  // namespace paceline
