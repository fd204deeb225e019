// How packed weights lie in memory, and how activations are quantised. Knows no arithmetic.
//
// A weight matrix [rows, cols] (rows are outputs) is cut into tiles of 16 rows; the last tile is padded with zero
// rows. Within a tile, inputs go by groups of 32 and, inside a group, by 8 steps of 4: "step s" of a group is one
// 64-byte vector whose byte 4*o + j is the code of row o, input 4*s + j. That is what vpdpbusd wants: 16 rows, four
// inputs each, weights as the unsigned operand. Everything a kernel loads starts on a 64-byte line where it can.
//
// Kind   w =                      tile bytes (G groups of 32 = cols/32, S = cols/256 super-blocks)
// W4     scale*u + min            G * 320          per group: nibbles[256], f16 scale[16], f16 min[16]
// W4K    d*sc*u - dmin*m          S * 2368         per super-block: f16 d[16], f16 dmin[16],
//                                                  8 x { u8 sc[16], u8 m[16] }, 8 x nibbles[256]
// W6     scale*u + min            G * 448          per group: nibbles[256], highs[128], f16 scale[16], f16 min[16]
// W6K    d*sc*(u - 32)            S * 3392         per super-block: f32 d[16], 16 x i8 sc[16] (one per 16 inputs),
//                                                  8 x { nibbles[256], highs[128] }
// W8     scale*(u - 128)          align64(G*32) + G*512     per tile: f16 scale[G][16] padded to a line,
//                                                  then per group 8 steps of codes[64]
// W4S    d*sc*(u - 8)             64 + align64(G*16) + G*256    per tile: f32 d[16], i8 sc[G][16] padded to a line,
//                                                  then per group nibbles[256]; for drafts, which nothing depends on
// F32, F16, BF16                  cols*16*size     [cols][16 rows]
//
// nibbles[256] = 4 chunks of 64: chunk c holds step c in its low and step c+4 in its high nibbles.
// highs[128]   = 2 chunks of 64: bits 2i..2i+1 of chunk h are bits 4..5 of step 4h+i.
// Functions here have internal linkage: they are compiled once per instruction set and must never be merged.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

constexpr int kTile = 16;
constexpr int kGroup = 32;
constexpr int kSuper = 256;

enum class Kind : int { F32 = 0, F16 = 1, BF16 = 2, W4 = 3, W4K = 4, W6 = 5, W6K = 6, W8 = 7, W4S = 8 };

static constexpr size_t align64(size_t n) { return (n + 63) & ~size_t{63}; }

constexpr size_t kW4Group = 320;
constexpr size_t kW4KSuper = 64 + 8 * 32 + 8 * 256;
constexpr size_t kW6Group = 448;
constexpr size_t kW6KSuper = 64 + 16 * 16 + 8 * (256 + 128);

// Where the codes of a W4S tile start.
static constexpr size_t w4s_codes(int cols) { return 64 + align64(static_cast<size_t>(cols) / kGroup * kTile); }

static inline size_t tile_bytes(Kind kind, int cols) {
  const size_t groups = static_cast<size_t>(cols) / kGroup, supers = static_cast<size_t>(cols) / kSuper;
  switch (kind) {
    case Kind::F32: return static_cast<size_t>(cols) * kTile * 4;
    case Kind::F16:
    case Kind::BF16: return align64(static_cast<size_t>(cols) * kTile * 2);
    case Kind::W4: return groups * kW4Group;
    case Kind::W4K: return supers * kW4KSuper;
    case Kind::W6: return groups * kW6Group;
    case Kind::W6K: return supers * kW6KSuper;
    case Kind::W8: return align64(groups * 32) + groups * 512;
    case Kind::W4S: return w4s_codes(cols) + groups * 256;
  }
  return 0;
}

static constexpr bool is_float(Kind kind) { return kind == Kind::F32 || kind == Kind::F16 || kind == Kind::BF16; }

// A packed matrix; the bytes are owned by the Weight object in weight.h.
struct WeightView {
  Kind kind;
  int rows, cols;
  const uint8_t* data;
  size_t tile_stride;
};

// Activations of T rows: int8 codes per group of 32 with one f32 scale, x ~ scale * code. The few largest inputs of
// each stretch of 1024 would coarsen their group's scale for all others: they have code 0 and are multiplied as floats.
constexpr int kStretch = 1024;
constexpr int kOutliers = 4;  // per stretch, from different groups

static constexpr int outliers_of(int cols) {
  const int rest = cols % kStretch / kGroup;
  return cols / kStretch * kOutliers + (rest < kOutliers ? rest : kOutliers);
}

struct QuantView {
  const int8_t* codes;       // [T, cols]
  const float* scale;        // [T, cols/32]
  const float* sum;          // [T, cols/32]   scale * (sum of the group's codes), and its outlier
  const int32_t* offset32;   // [T, cols/16]   -32 * (sum of each 16 codes): what centring codes on 32 subtracts;
                             //                on AVX2 as two words that add up to it (products_avx2.inc)
  const int32_t* offset128;  // [T, cols/32]   -128 * (sum of the group's codes)
  const int32_t* outlier;    // [T, outliers_of(cols)] columns
  const float* outlier_value;
  int cols;
  const void* spots = nullptr;  // where outliers lie in a tile, for kernels that work it out beforehand
};

// Where one row of them is written; fields as in QuantView.
struct QuantRow {
  int8_t* codes;
  float *scale, *sum;
  int32_t *offset32, *offset128, *outlier;
  float* outlier_value;
};

}  // namespace paceline
