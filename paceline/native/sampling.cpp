// The Python face of sampling: adjust a row, draw from it, say which tokens its distribution holds, and the noise
// itself.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "adjust.h"
#include "dispatch.h"
#include "draw.h"
#include "sampling.h"
#include "weights.h"

namespace nb = nanobind;

namespace paceline {

const Kernels& noise_kernels(const std::string& isa) {
  static const std::vector<const Kernels*> available = available_kernels();
  if (isa.empty()) return *available.front();
  for (const Kernels* kernels : available)
    if (isa == kernels->name) return *kernels;
  throw std::invalid_argument("this processor does not run `" + isa + "`");
}

namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Changed = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> array_of(const std::vector<T>& values) {
  T* copy = new T[values.size()];
  std::copy(values.begin(), values.end(), copy);
  nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy, {values.size()}, owner);
}

Span span_of(const Tokens& tokens) { return {tokens.data(), static_cast<int>(tokens.shape(0))}; }

void adjust_row(const Logits& logits, const Changed& out, const Tokens& tokens, const Tokens& path, int prompt_length,
                double repetition, double presence, double frequency, const Tokens& bias_ids, const Logits& bias,
                const std::optional<Tokens>& allowed, const Tokens& banned, const Tokens& ban_starts,
                const Tokens& ends) {
  const Span all = span_of(tokens);
  if (out.shape(0) != logits.shape(0) || bias.shape(0) != bias_ids.shape(0) || prompt_length < 0 ||
      prompt_length > all.count)
    throw std::invalid_argument("arrays disagree in length");
  for (size_t i = 0; i + 1 < ban_starts.shape(0); ++i)
    if (ban_starts(i) < 0 || ban_starts(i) >= ban_starts(i + 1) ||
        ban_starts(i + 1) > static_cast<int32_t>(banned.shape(0)))
      throw std::invalid_argument("banned sequences must lie within their array and hold a token");
  const Adjustment adjustment{{all.data, prompt_length},
                              {all.data + prompt_length, all.count - prompt_length},
                              span_of(path),
                              static_cast<float>(repetition),
                              static_cast<float>(presence),
                              static_cast<float>(frequency),
                              span_of(bias_ids),
                              bias.data(),
                              allowed.has_value(),
                              allowed ? span_of(*allowed) : Span{nullptr, 0},
                              span_of(banned),
                              span_of(ban_starts),
                              span_of(ends)};
  nb::gil_scoped_release release;
  adjust(logits.data(), static_cast<int>(logits.shape(0)), adjustment, out.data());
}

}  // namespace

double probability_of(const float* logits, int n, float top, float value, double temperature) {
  const Scale scale(top, temperature);
  Sums own;
  weigh(scale, &value, 1, &own);
  return static_cast<double>(own.weight) / static_cast<double>(sum_weights(scale, logits, n));
}

void bind_sampling(nb::module_& m) {
  using namespace nb::literals;
  m.def("adjust", &adjust_row, "logits"_a, "out"_a, "tokens"_a, "path"_a, "prompt_length"_a, "repetition"_a,
        "presence"_a, "frequency"_a, "bias_ids"_a, "bias"_a, "allowed"_a.none(), "banned"_a, "ban_starts"_a, "ends"_a,
        "write the adjusted row into `out`, float32 [V]");
  m.def(
      "draw",
      [](const Logits& logits, double temperature, int top_k, double top_p, double typical_p, double min_p,
         uint64_t seed, int64_t position, const std::optional<Tokens>& peaks) {
        const int n = static_cast<int>(logits.shape(0));
        if (peaks && static_cast<int>(peaks->shape(0)) != blocks_of(n))
          throw std::invalid_argument("a row has one peak for each block");
        nb::gil_scoped_release release;
        const Row row(logits.data(), n, nullptr, peaks ? peaks->data() : nullptr);
        return draw(row, {temperature, top_k, top_p, typical_p, min_p}, {seed, position});
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "typical_p"_a, "min_p"_a, "seed"_a, "position"_a,
      "peaks"_a = nb::none());
  m.def(
      "draw_among",
      [](const Logits& logits, const Tokens& tokens, double temperature, int top_k, double top_p, double min_p,
         uint64_t seed, int64_t position) {
        if (tokens.shape(0) != logits.shape(0)) throw std::invalid_argument("arrays disagree in length");
        const int32_t* end = tokens.data() + tokens.shape(0);
        if (std::adjacent_find(tokens.data(), end, std::greater_equal<>()) != end)
          throw std::invalid_argument("tokens must ascend");
        nb::gil_scoped_release release;
        const Row row(logits.data(), static_cast<int>(logits.shape(0)), tokens.data());
        return row.token(draw(row, {temperature, top_k, top_p, 1.0, min_p}, {seed, position}));
      },
      "logits"_a, "tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "seed"_a, "position"_a,
      "`draw` where only these tokens, ascending, have logits");
  m.def(
      "survivors",
      [](const Logits& logits, double temperature, int top_k, double top_p, double min_p, double typical_p) {
        return array_of(survivors(Row(logits.data(), static_cast<int>(logits.shape(0))),
                                  {temperature, top_k, top_p, typical_p, min_p}));
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "typical_p"_a = 1.0,
      "int32 [n], best first: the tokens of the distribution");
  m.def(
      "kept",
      [](const Logits& logits, double temperature, int top_k, double top_p, double typical_p, double min_p) {
        return array_of(
            kept(Row(logits.data(), static_cast<int>(logits.shape(0))), {temperature, top_k, top_p, typical_p, min_p}));
      },
      "logits"_a, "temperature"_a, "top_k"_a, "top_p"_a, "typical_p"_a, "min_p"_a, "int32 [n]: the same by id");
  m.def(
      "probability",
      [](const Logits& logits, float value, double temperature) {
        const int count = static_cast<int>(logits.shape(0));
        return probability_of(logits.data(), count, Row(logits.data(), count).top(), value, temperature);
      },
      "logits"_a, "value"_a, "temperature"_a, "how likely a token with logit `value` is, before any filter");
  m.def(
      "reaching",
      [](const Logits& block, float floor, float end, int first, int group, const std::string& isa) {
        if (block.shape(0) != kBlock || (group != 1 && group != 4))
          throw std::invalid_argument("a block has 64 logits, a group 1 or 4 of them");
        std::vector<int32_t> out(kBlock);
        const int count = noise_kernels(isa).reaching(block.data(), floor, end, first, group, out.data());
        out.resize(static_cast<size_t>(count));
        return array_of(out);
      },
      "block"_a, "floor"_a, "end"_a, "first"_a, "group"_a, "isa"_a = "",
      "int32 [n]: where, from `first` on, those groups of a block's logits begin of which one is in [floor, end)");
  m.def(
      "philox",
      [](uint64_t seed, uint32_t stream, int64_t position, const Tokens& tokens, const std::string& isa) {
        const Kernels& kernels = noise_kernels(isa);
        const size_t count = tokens.shape(0);
        std::vector<uint32_t> words(count);
        for (size_t from = 0; from < count; from += kBatch) {
          uint32_t counters[kBatch] = {}, theirs[kWords];
          const size_t some = std::min<size_t>(count - from, kBatch);
          for (size_t i = 0; i < some; ++i) counters[i] = counter(tokens(from + i));
          noise(kernels, {seed, position}, counters, theirs, stream);
          for (size_t i = 0; i < some; ++i)
            words[from + i] = theirs[static_cast<size_t>(lane(tokens(from + i))) * kBatch + i];
        }
        return array_of(words);
      },
      "seed"_a, "stream"_a, "position"_a, "tokens"_a, "isa"_a = "", "uint32 [n]: the words of these tokens");
}

}  // namespace paceline
