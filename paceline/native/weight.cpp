// Reads packed weights back, row by row: the inverse of pack.cpp for tests, embeddings and the plain path.
#include "weight.h"

#include <stdexcept>

#include "formats.h"

namespace paceline {
namespace {

// The codes of one row in a group, from its nibbles and (six bits only) highs.
void read_codes(const uint8_t* nibbles, const uint8_t* highs, int o, uint8_t* u) {
  for (int i = 0; i < kGroup; ++i) {
    const int step = i / 4, at = 4 * o + i % 4;
    u[i] = (nibbles[64 * (step & 3) + at] >> (step < 4 ? 0 : 4)) & 15;
    if (highs) u[i] = static_cast<uint8_t>(u[i] | (((highs[64 * (step / 4) + at] >> (2 * (step & 3))) & 3) << 4));
  }
}

float half_at(const uint8_t* halves, int index) { return half_to_float(load16(halves + 2 * index)); }

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::F32: return "F32";
    case Kind::F16: return "F16";
    case Kind::BF16: return "BF16";
    case Kind::W4: return "W4";
    case Kind::W4K: return "W4K";
    case Kind::W6: return "W6";
    case Kind::W6K: return "W6K";
    case Kind::W8: return "W8";
    case Kind::W4S: return "W4S";
  }
  return "?";
}

void Weight::unpack_row(int row, float* dst) const {
  const uint8_t* tile = data() + static_cast<size_t>(row / kTile) * stride_;
  const int o = row % kTile, groups = cols_ / kGroup;
  if (is_float(kind_)) {
    for (int i = 0; i < cols_; ++i) {
      const size_t at = static_cast<size_t>(i) * kTile + static_cast<size_t>(o);
      dst[i] = kind_ == Kind::F32   ? loadf(tile + 4 * at)
               : kind_ == Kind::F16 ? half_to_float(load16(tile + 2 * at))
                                    : bfloat_to_float(load16(tile + 2 * at));
    }
    return;
  }
  for (int g = 0; g < groups; ++g, dst += kGroup) {
    uint8_t u[kGroup];
    Fit fit[2];
    if (kind_ == Kind::W4 || kind_ == Kind::W6) {
      const bool six = kind_ == Kind::W6;
      const uint8_t* p = tile + static_cast<size_t>(g) * (six ? kW6Group : kW4Group);
      read_codes(p, six ? p + 256 : nullptr, o, u);
      const uint8_t* halves = p + (six ? 384 : 256);
      fit[0] = fit[1] = {half_at(halves, o), half_at(halves + 32, o)};
    } else if (kind_ == Kind::W4K) {
      const uint8_t* p = tile + static_cast<size_t>(g / 8) * kW4KSuper;
      read_codes(p + 320 + 256 * (g % 8), nullptr, o, u);
      const uint8_t* six = p + 64 + 32 * (g % 8);
      fit[0] = fit[1] = {half_at(p, o) * static_cast<float>(six[o]),
                         -(half_at(p + 32, o) * static_cast<float>(six[16 + o]))};
    } else if (kind_ == Kind::W6K) {
      const uint8_t* p = tile + static_cast<size_t>(g / 8) * kW6KSuper;
      read_codes(p + 320 + 384 * (g % 8), p + 576 + 384 * (g % 8), o, u);
      for (int half = 0; half < 2; ++half) {
        const int8_t sc = static_cast<int8_t>(p[64 + 16 * (2 * (g % 8) + half) + o]);
        const float s = loadf(p + 4 * o) * static_cast<float>(sc);
        fit[half] = {s, -32 * s};
      }
    } else if (kind_ == Kind::W4S) {
      read_codes(tile + w4s_codes(cols_) + static_cast<size_t>(g) * 256, nullptr, o, u);
      const int8_t sc = static_cast<int8_t>(tile[64 + g * kTile + o]);
      const float s = loadf(tile + 4 * o) * static_cast<float>(sc);
      fit[0] = fit[1] = {s, -8 * s};
    } else {
      const float s = half_at(tile + static_cast<size_t>(g) * 32, o);
      const uint8_t* codes = tile + align64(static_cast<size_t>(groups) * 32) + static_cast<size_t>(g) * 512;
      for (int i = 0; i < kGroup; ++i) u[i] = codes[64 * (i / 4) + 4 * o + i % 4];
      fit[0] = fit[1] = {s, -128 * s};
    }
    for (int i = 0; i < kGroup; ++i) dst[i] = fit[i / 16].scale * static_cast<float>(u[i]) + fit[i / 16].min;
  }
}

// Every kind keeps a row's numbers in runs of equal length, one run per row of the tile: the runs' places are all a
// copy needs.
void Weight::copy_row(int row, const Weight& from, int source) {
  if (from.kind_ != kind_ || from.cols_ != cols_) throw std::invalid_argument("rows of another kind or width");
  if (row < 0 || row >= rows_ || source < 0 || source >= from.rows_) throw std::invalid_argument("no such row");
  uint8_t* to = tile(row / kTile);
  const uint8_t* tile_from = from.data() + static_cast<size_t>(source / kTile) * stride_;
  const size_t o = static_cast<size_t>(row % kTile), p = static_cast<size_t>(source % kTile);
  const auto runs = [&](size_t at, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; ++i, at += kTile * bytes)
      std::memcpy(to + at + o * bytes, tile_from + at + p * bytes, bytes);
  };
  const size_t groups = static_cast<size_t>(cols_) / kGroup;
  switch (kind_) {
    case Kind::F32: return runs(0, static_cast<size_t>(cols_), 4);
    case Kind::F16:
    case Kind::BF16: return runs(0, static_cast<size_t>(cols_), 2);
    case Kind::W8: runs(0, groups, 2); return runs(align64(groups * 32), groups * 8, 4);
    case Kind::W4S:
      runs(0, 1, 4);
      runs(64, groups, 1);
      return runs(w4s_codes(cols_), groups * 4, 4);
    case Kind::W4:
    case Kind::W6:
      for (size_t g = 0, chunks = kind_ == Kind::W4 ? 4 : 6; g < groups; ++g) {
        const size_t at = g * (kind_ == Kind::W4 ? kW4Group : kW6Group);
        runs(at, chunks, 4);
        runs(at + chunks * 64, 2, 2);
      }
      return;
    case Kind::W4K:
      for (size_t s = 0; s < groups / 8; ++s) {
        const size_t at = s * kW4KSuper;
        runs(at, 2, 2);
        runs(at + 64, 16, 1);
        runs(at + 320, 32, 4);
      }
      return;
    case Kind::W6K:
      for (size_t s = 0; s < groups / 8; ++s) {
        const size_t at = s * kW6KSuper;
        runs(at, 1, 4);
        runs(at + 64, 16, 1);
        runs(at + 320, 48, 4);
      }
      return;
  }
}

EmbedTable::EmbedTable(const uint8_t* src, int ggml_type, int rows, int cols)
    : type_(ggml_type),
      rows_(rows),
      cols_(cols),
      row_bytes_(row_bytes(ggml_type, static_cast<size_t>(cols))),
      raw_(static_cast<size_t>(rows) * row_bytes_) {
  std::memcpy(raw_.data(), src, raw_.size());
}

EmbedTable::EmbedTable(const Weight& weight)
    : rows_(weight.rows()), cols_(weight.cols()), weight_(std::make_unique<Weight>(weight)) {}

void EmbedTable::row(int id, float* dst) const {
  if (weight_) {
    weight_->unpack_row(id, dst);
  } else {
    dequantize_row(type_, raw_.data() + static_cast<size_t>(id) * row_bytes_, dst, cols_);
  }
}

}  // namespace paceline
