// Packs weights tile by tile, and binds weights and embedding tables to Python.
#include "pack.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "formats.h"
#include "requantize.h"

namespace nb = nanobind;

namespace paceline {
namespace {

// n <= 16 rows of blocks, the first at `src`.
struct Rows {
  const uint8_t* src;
  size_t stride;
  int n, cols;

  const uint8_t* at(int row, size_t offset) const { return src + static_cast<size_t>(row) * stride + offset; }
};

void put_nibbles(uint8_t* dst, int o, const uint32_t* w) {
  for (int c = 0; c < 4; ++c) {
    store32(dst + 64 * c + 4 * o, (w[c] & detail::kNibble) | ((w[c + 4] & detail::kNibble) << 4));
  }
}

void put_highs(uint8_t* dst, int o, const uint32_t* w) {
  for (int h = 0; h < 2; ++h) {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v |= ((w[4 * h + i] >> 4) & detail::kPair) << (2 * i);
    store32(dst + 64 * h + 4 * o, v);
  }
}

// W4 and W6, from formats with one scale and minimum per 32 inputs.
template <class Q, bool six>
void tile_affine(const Rows& rows, uint8_t* tile) {
  constexpr int per_block = Q::kBlock / kGroup;
  constexpr size_t halves = six ? 384 : 256;
  for (int g = 0; g < rows.cols / kGroup; ++g, tile += six ? kW6Group : kW4Group) {
    for (int o = 0; o < rows.n; ++o) {
      const uint8_t* block = rows.at(o, static_cast<size_t>(g / per_block) * Q::kBytes);
      uint32_t w[8];
      Q::codes(block, g % per_block, w);
      put_nibbles(tile, o, w);
      if constexpr (six) put_highs(tile + 256, o, w);
      const Fit fit = Q::fit(block, 2 * (g % per_block));
      store16(tile + halves + 2 * o, float_to_half(fit.scale));
      store16(tile + halves + 32 + 2 * o, float_to_half(fit.min));
    }
  }
}

void tile_w4k(const Rows& rows, uint8_t* tile) {
  for (int s = 0; s < rows.cols / kSuper; ++s, tile += kW4KSuper) {
    for (int o = 0; o < rows.n; ++o) {
      const uint8_t* block = rows.at(o, static_cast<size_t>(s) * Q4_K::kBytes);
      store16(tile + 2 * o, load16(block));
      store16(tile + 32 + 2 * o, load16(block + 2));
      for (int g = 0; g < 8; ++g) {
        uint8_t* six = tile + 64 + 32 * g;
        detail::scale_min_6bit(block + 4, g, six[o], six[16 + o]);
        uint32_t w[8];
        Q4_K::codes(block, g, w);
        put_nibbles(tile + 320 + 256 * g, o, w);
      }
    }
  }
}

template <class Q>
void tile_w6k(const Rows& rows, uint8_t* tile) {
  for (int s = 0; s < rows.cols / kSuper; ++s, tile += kW6KSuper) {
    for (int o = 0; o < rows.n; ++o) {
      const uint8_t* block = rows.at(o, static_cast<size_t>(s) * Q::kBytes);
      store32(tile + 4 * o, std::bit_cast<uint32_t>(Q::d(block)));
      for (int half = 0; half < 16; ++half) tile[64 + 16 * half + o] = static_cast<uint8_t>(Q::scale(block, half));
      for (int g = 0; g < 8; ++g) {
        uint32_t w[8];
        Q::codes(block, g, w);
        put_nibbles(tile + 320 + 384 * g, o, w);
        put_highs(tile + 576 + 384 * g, o, w);
      }
    }
  }
}

template <class Q>
void tile_w8(const Rows& rows, uint8_t* tile) {
  const int groups = rows.cols / kGroup;
  uint8_t* codes = tile + align64(static_cast<size_t>(groups) * 32);
  for (int g = 0; g < groups; ++g, codes += 512) {
    for (int o = 0; o < rows.n; ++o) {
      const uint8_t* block = rows.at(o, static_cast<size_t>(g) * Q::kBytes);
      uint32_t w[8];
      Q::codes(block, 0, w);
      for (int step = 0; step < 8; ++step) store32(codes + 64 * step + 4 * o, w[step]);
      store16(tile + 32 * static_cast<size_t>(g) + 2 * o, load16(block));
    }
  }
}

// Any format to floats or fitted codes, 256 inputs at a time.
void tile_converted(const Rows& rows, int ggml_type, Kind kind, uint8_t* tile) {
  constexpr int kChunk = 256;
  alignas(64) float row[kChunk], w[kChunk * kTile] = {};
  uint8_t* const scales = tile;  // W8
  if (kind == Kind::W8) tile += align64(static_cast<size_t>(rows.cols / kGroup) * 32);
  for (int at = 0; at < rows.cols; at += kChunk) {
    const int width = rows.cols - at < kChunk ? rows.cols - at : kChunk;
    const size_t skip = row_bytes(ggml_type, static_cast<size_t>(at));
    for (int o = 0; o < rows.n; ++o) {
      dequantize_row(ggml_type, rows.at(o, skip), row, width);
      for (int i = 0; i < width; ++i) w[i * kTile + o] = row[i];
    }
    if (kind == Kind::F32) {
      std::memcpy(tile + static_cast<size_t>(at) * kTile * 4, w, static_cast<size_t>(width) * kTile * 4);
    } else if (is_float(kind)) {
      auto* to = reinterpret_cast<uint16_t*>(tile) + static_cast<size_t>(at) * kTile;
      if (kind == Kind::F16) {
        for (int i = 0; i < width * kTile; ++i) to[i] = float_to_half(w[i]);
      } else {
        for (int i = 0; i < width * kTile; ++i) to[i] = float_to_bfloat(w[i]);
      }
    } else {
      for (int i = 0; i < width; i += kGroup) {
        alignas(64) uint8_t u[kGroup * kTile];
        alignas(64) float scale[kTile], min[kTile];
        const bool six = kind == Kind::W6;
        if (kind == Kind::W8) {
          requantize_symmetric(w + i * kTile, u, scale);
        } else {
          requantize_affine(w + i * kTile, six ? 63 : 15, u, scale, min);
        }
        for (int o = 0; o < rows.n; ++o) {
          uint8_t own[kGroup];
          uint32_t codes[8];
          for (int k = 0; k < kGroup; ++k) own[k] = u[k * kTile + o];
          std::memcpy(codes, own, kGroup);
          if (kind == Kind::W8) {
            for (int step = 0; step < 8; ++step) store32(tile + 64 * step + 4 * o, codes[step]);
            store16(scales + static_cast<size_t>(at + i) + 2 * o, float_to_half(scale[o]));
          } else {
            put_nibbles(tile, o, codes);
            if (six) put_highs(tile + 256, o, codes);
            store16(tile + (six ? 384 : 256) + 2 * o, float_to_half(scale[o]));
            store16(tile + (six ? 416 : 288) + 2 * o, float_to_half(min[o]));
          }
        }
        tile += kind == Kind::W8 ? 512 : six ? kW6Group : kW4Group;
      }
    }
  }
}

// Any format to W4S: a group's scale is a whole number of 127ths of the largest of its row, which is rounded to eleven
// bits, so that no product of the two and a code is.
void tile_w4s(const Rows& rows, int ggml_type, uint8_t* tile) {
  const size_t width = static_cast<size_t>(rows.cols), groups = width / kGroup;
  std::vector<float> row(width), w(width * kTile), scales(groups * kTile), d(kTile);
  for (int o = 0; o < rows.n; ++o) {
    dequantize_row(ggml_type, rows.at(o, 0), row.data(), rows.cols);
    for (size_t i = 0; i < width; ++i) w[i * kTile + static_cast<size_t>(o)] = row[i];
  }
  for (size_t g = 0; g < groups; ++g) fit_centred(w.data() + g * kGroup * kTile, scales.data() + g * kTile);
  for (size_t i = 0; i < scales.size(); ++i) d[i % kTile] = std::max(d[i % kTile], std::fabs(scales[i]) / 127.0f);
  for (float& each : d) each = std::bit_cast<float>((std::bit_cast<uint32_t>(each) + 0x1000) & ~0x1fffu);
  std::memcpy(tile, d.data(), kTile * 4);
  auto* sc = reinterpret_cast<int8_t*>(tile + 64);
  uint8_t* codes = tile + w4s_codes(rows.cols);
  for (size_t g = 0; g < groups; ++g, sc += kTile, codes += 256) {
    float* scale = scales.data() + g * kTile;
    uint8_t u[kGroup * kTile];
    for (int o = 0; o < kTile; ++o) {
      sc[o] = static_cast<int8_t>(d[o] > 0 ? std::nearbyint(scale[o] / d[o]) : 0.0f);
      scale[o] = d[o] * static_cast<float>(sc[o]);
    }
    codes_centred(w.data() + g * kGroup * kTile, scale, u);
    for (int o = 0; o < rows.n; ++o) {
      uint8_t own[kGroup];
      uint32_t words[8];
      for (int k = 0; k < kGroup; ++k) own[k] = u[k * kTile + o];
      std::memcpy(words, own, kGroup);
      put_nibbles(codes, o, words);
    }
  }
}

using TilePacker = void (*)(const Rows&, uint8_t*);
struct Native {
  Kind kind;
  TilePacker packer;  // null: converted
};

// The packed kind that keeps a file type's precision.
Native native_kind(int ggml_type) {
  switch (ggml_type) {
    case 0: return {Kind::F32, nullptr};
    case 1: return {Kind::F16, nullptr};
    case 2: return {Kind::W4, tile_affine<Q4_0, false>};
    case 3: return {Kind::W4, tile_affine<Q4_1, false>};
    case 6: return {Kind::W6, tile_affine<Q5_0, true>};
    case 7: return {Kind::W6, tile_affine<Q5_1, true>};
    case 8: return {Kind::W8, tile_w8<Q8_0>};
    case 10: return {Kind::W6, nullptr};  // two scales and minima per 32 inputs
    case 11: return {Kind::W6K, tile_w6k<Q3_K>};
    case 12: return {Kind::W4K, tile_w4k};
    case 13: return {Kind::W6, tile_affine<Q5_K, true>};
    case 14: return {Kind::W6K, tile_w6k<Q6_K>};
    case 20: return {Kind::W8, tile_w8<IQ4_NL>};
    default: return {Kind::BF16, nullptr};
  }
}

Kind asked_kind(const std::string& kind, Kind native) {
  if (kind == "auto") return native;
  if (kind == "f32") return Kind::F32;
  if (kind == "f16") return Kind::F16;
  if (kind == "bf16") return Kind::BF16;
  if (kind == "q4") return native == Kind::W4K ? native : Kind::W4;
  if (kind == "q4s") return native == Kind::W4K || native == Kind::W4 ? native : Kind::W4S;  // not rounded twice
  if (kind == "q6") return native == Kind::W6K ? native : Kind::W6;
  if (kind == "q8") return Kind::W8;
  throw std::invalid_argument("kind must be auto, q4, q4s, q6, q8, f16, bf16 or f32, got `" + kind + "`");
}

void check_source(size_t bytes, int ggml_type, int64_t rows, int64_t cols) {
  const std::string shape = std::to_string(rows) + " x " + std::to_string(cols);
  constexpr int64_t most = std::numeric_limits<int>::max() - kSuper;
  if (rows < 1 || cols < 1 || rows > most || cols > most) {
    throw std::invalid_argument("rows and cols must be from 1 to " + std::to_string(most) + ", got " + shape);
  }
  if (!with_format(ggml_type, [](auto) {})) {
    throw std::invalid_argument("ggml type " + std::to_string(ggml_type) + " is not supported");
  }
  const size_t row = row_bytes(ggml_type, static_cast<size_t>(cols));
  if (row == 0) {
    throw std::invalid_argument("cols must be a multiple of the block of ggml type " + std::to_string(ggml_type) +
                                ", got " + std::to_string(cols));
  }
  if (bytes % row != 0 || bytes / row != static_cast<size_t>(rows)) {
    throw std::invalid_argument(shape + " of ggml type " + std::to_string(ggml_type) + " takes " + std::to_string(row) +
                                " bytes a row, got " + std::to_string(bytes) + " bytes in all");
  }
}

}  // namespace

Weight pack(const uint8_t* src, size_t bytes, int ggml_type, int64_t rows, int64_t cols, const std::string& kind,
            Pool& pool) {
  check_source(bytes, ggml_type, rows, cols);
  Native native = native_kind(ggml_type);
  const Kind wanted = asked_kind(kind, native.kind);
  if (wanted != native.kind) native.packer = nullptr;
  if (!is_float(wanted) && cols % kGroup != 0) {
    throw std::invalid_argument("cols must be a multiple of 32 to pack as " + std::string(kind_name(wanted)) +
                                ", got " + std::to_string(cols));
  }
  Weight weight(wanted, static_cast<int>(rows), static_cast<int>(cols));
  const size_t stride = row_bytes(ggml_type, static_cast<size_t>(cols));
  pool.share(weight.tiles(), 2, [&](int begin, int end) {
    for (int t = begin; t < end; ++t) {
      const int first = t * kTile, n = weight.rows() - first < kTile ? weight.rows() - first : kTile;
      const Rows tile_rows{src + static_cast<size_t>(first) * stride, stride, n, weight.cols()};
      if (native.packer) {
        native.packer(tile_rows, weight.tile(t));
      } else if (wanted == Kind::W4S) {
        tile_w4s(tile_rows, ggml_type, weight.tile(t));
      } else {
        tile_converted(tile_rows, ggml_type, wanted, weight.tile(t));
      }
    }
  });
  return weight;
}

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// f32 [n, cols], row i filled by fill(i, dst) without the GIL.
template <class Fill>
Floats filled(size_t n, int cols, const Fill& fill) {
  const size_t width = static_cast<size_t>(cols);
  float* out = new float[n * width];
  nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  {
    nb::gil_scoped_release release;
    for (size_t i = 0; i < n; ++i) fill(i, out + i * width);
  }
  return Floats(out, {n, width}, owner);
}

}  // namespace

void bind_weight(nb::module_& m) {
  nb::class_<Weight>(m, "Weight", "A weight matrix packed for the kernels; layout.h says how.")
      .def_prop_ro("kind", [](const Weight& w) { return kind_name(w.kind()); })
      .def_prop_ro("rows", &Weight::rows)
      .def_prop_ro("cols", &Weight::cols)
      .def_prop_ro("nbytes", &Weight::nbytes)
      .def_prop_ro("data",
                   [](nb::object self) {
                     const Weight& w = nb::cast<const Weight&>(self);
                     return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(w.data(), {w.nbytes()}, self);
                   })
      .def(
          "unpack_rows",
          [](const Weight& w, int begin, int end) {
            if (begin < 0 || end < begin || end > w.rows()) {
              throw nb::index_error(
                  ("rows " + std::to_string(begin) + " to " + std::to_string(end) + " of " + std::to_string(w.rows()))
                      .c_str());
            }
            return filled(static_cast<size_t>(end - begin), w.cols(),
                          [&](size_t i, float* dst) { w.unpack_row(begin + static_cast<int>(i), dst); });
          },
          nb::arg("begin"), nb::arg("end"))
      .def(
          "gather",
          [](const Weight& w, Ids rows) {
            Weight gathered(w.kind(), static_cast<int>(rows.shape(0)), w.cols());
            for (int i = 0; i < gathered.rows(); ++i) gathered.copy_row(i, w, rows.data()[i]);
            return gathered;
          },
          nb::arg("rows"), "These rows as a matrix of their own.")
      .def("first", &Weight::first, nb::arg("rows"), "The first rows, at the same bytes.")
      .def("copy_row", &Weight::copy_row, nb::arg("row"), nb::arg("source"), nb::arg("source_row"));

  nb::class_<EmbedTable>(m, "EmbedTable", "Rows of embeddings, by token id.")
      .def(
          "__init__",
          [](EmbedTable* self, Bytes source, int ggml_type, int64_t rows, int64_t cols) {
            check_source(source.nbytes(), ggml_type, rows, cols);
            nb::gil_scoped_release release;
            new (self) EmbedTable(source.data(), ggml_type, static_cast<int>(rows), static_cast<int>(cols));
          },
          nb::arg("source"), nb::arg("ggml_type"), nb::arg("rows"), nb::arg("cols"))
      .def_static(
          "from_weight", [](const Weight& weight) { return EmbedTable(weight); }, nb::arg("weight"))
      .def_prop_ro("rows", &EmbedTable::rows)
      .def_prop_ro("cols", &EmbedTable::cols)
      .def_prop_ro("nbytes", &EmbedTable::nbytes)
      .def(
          "lookup",
          [](const EmbedTable& table, Ids ids) {
            for (size_t i = 0; i < ids.shape(0); ++i) {
              if (ids.data()[i] < 0 || ids.data()[i] >= table.rows()) {
                throw nb::index_error(("token id must be from 0 to " + std::to_string(table.rows() - 1) + ", got " +
                                       std::to_string(ids.data()[i]))
                                          .c_str());
              }
            }
            return filled(ids.shape(0), table.cols(), [&](size_t i, float* dst) { table.row(ids.data()[i], dst); });
          },
          nb::arg("ids"));

  m.def(
      "pack",
      [](Bytes source, int ggml_type, int64_t rows, int64_t cols, const std::string& kind, Pool& pool) {
        nb::gil_scoped_release release;
        return pack(source.data(), source.nbytes(), ggml_type, rows, cols, kind, pool);
      },
      nb::arg("source"), nb::arg("ggml_type"), nb::arg("rows"), nb::arg("cols"), nb::arg("kind"), nb::arg("pool"),
      "Pack rows of a model file into tiles; ValueError when bytes, type and shape do not fit.");
  m.def(
      "dequantize",
      [](Bytes source, int ggml_type, int64_t rows, int64_t cols) {
        check_source(source.nbytes(), ggml_type, rows, cols);
        const size_t stride = row_bytes(ggml_type, static_cast<size_t>(cols));
        return filled(static_cast<size_t>(rows), static_cast<int>(cols), [&](size_t i, float* dst) {
          dequantize_row(ggml_type, source.data() + i * stride, dst, static_cast<int>(cols));
        });
      },
      nb::arg("source"), nb::arg("ggml_type"), nb::arg("rows"), nb::arg("cols"),
      "Rows of a model file as float32 [rows, cols].");
}

}  // namespace paceline
