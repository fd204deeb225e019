// The block formats of GGUF files: where codes, scales and minima lie in a block, and what floats they stand for.
//
// Every quantised format here is affine: w = scale*u + min with an unsigned code u of at most 8 bits and one
// (scale, min) per 16 inputs. Products of f16 scales and codes are exact in f32, so this is the usual d*(u - offset).
// Knows nothing of tiles. All functions are static: a translation unit built for a wider instruction set must not lend
// its copy to one that is not.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace paceline {

static_assert(std::endian::native == std::endian::little, "GGUF files and packed weights are little-endian");

static inline uint16_t load16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
static inline uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
static inline void store16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, 2); }
static inline void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }
static inline float loadf(const uint8_t* p) { return std::bit_cast<float>(load32(p)); }

// Branch-free integer conversions, exact with subnormals and infinities; they vectorise where _Float16 calls a library.
static inline float half_to_float(uint16_t half) {
  const uint32_t word = uint32_t{half} << 16, twice = word + word;
  const float normal = std::bit_cast<float>((twice >> 4) + (0xE0u << 23)) * 0x1p-112f;
  const float tiny = std::bit_cast<float>((twice >> 17) | (126u << 23)) - 0.5f;
  const uint32_t bits = twice < (1u << 27) ? std::bit_cast<uint32_t>(tiny) : std::bit_cast<uint32_t>(normal);
  return std::bit_cast<float>((word & 0x80000000u) | bits);
}
static inline uint16_t float_to_half(float value) {  // to nearest, ties to even
  const uint32_t word = std::bit_cast<uint32_t>(value), twice = word + word, sign = word & 0x80000000u;
  float base = (std::bit_cast<float>(word & 0x7FFFFFFFu) * 0x1p+112f) * 0x1p-110f;
  uint32_t bias = twice & 0xFF000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  base = std::bit_cast<float>((bias >> 1) + 0x07800000u) + base;
  const uint32_t bits = std::bit_cast<uint32_t>(base), rest = ((bits >> 13) & 0x7C00u) + (bits & 0xFFFu);
  return static_cast<uint16_t>((sign >> 16) | (twice > 0xFF000000u ? 0x7E00u : rest));
}
static inline float bfloat_to_float(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }
static inline uint16_t float_to_bfloat(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t nan = (word >> 16) | 0x40u, near = (word + 0x7FFFu + ((word >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? nan : near);
}

struct Fit {
  float scale, min;
};

// Each format: `codes` gives the 32 codes of a group of the block, one a byte, in the order of the inputs;
// `fit` the affine map of 16 inputs (half = 2*group or 2*group + 1).
namespace detail {
constexpr uint32_t kNibble = 0x0F0F0F0Fu, kPair = 0x03030303u, kBit = 0x01010101u;

static inline void nibble_codes(const uint8_t* q, uint32_t* w) {  // 16 bytes: inputs 0..15 low, 16..31 high
  for (int c = 0; c < 4; ++c) {
    const uint32_t v = load32(q + 4 * c);
    w[c] = v & kNibble;
    w[c + 4] = (v >> 4) & kNibble;
  }
}
static inline void fifth_bits(const uint8_t* q, uint32_t* w) {  // 32 bits, one an input
  const uint32_t bits = load32(q);
  for (int c = 0; c < 8; ++c) w[c] |= ((((bits >> (4 * c)) & 15u) * 0x00204081u) & kBit) << 4;
}
static inline void half_byte_codes(const uint8_t* q, int shift, uint32_t* w) {  // 32 bytes, one nibble of each
  for (int c = 0; c < 8; ++c) w[c] = (load32(q + 4 * c) >> shift) & kNibble;
}
static inline void scale_min_6bit(const uint8_t* q, int group, uint8_t& scale, uint8_t& min) {
  if (group < 4) {
    scale = q[group] & 63;
    min = q[group + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((q[group + 4] & 15) | ((q[group - 4] >> 6) << 4));
    min = static_cast<uint8_t>((q[group + 4] >> 4) | ((q[group] >> 6) << 4));
  }
}
}  // namespace detail

struct Q4_0 {
  static constexpr int kBlock = 32, kBytes = 18;
  static void codes(const uint8_t* b, int, uint32_t* w) { detail::nibble_codes(b + 2, w); }
  static Fit fit(const uint8_t* b, int) {
    const float d = half_to_float(load16(b));
    return {d, -8 * d};
  }
};
struct Q4_1 {
  static constexpr int kBlock = 32, kBytes = 20;
  static void codes(const uint8_t* b, int, uint32_t* w) { detail::nibble_codes(b + 4, w); }
  static Fit fit(const uint8_t* b, int) { return {half_to_float(load16(b)), half_to_float(load16(b + 2))}; }
};
struct Q5_0 {
  static constexpr int kBlock = 32, kBytes = 22;
  static void codes(const uint8_t* b, int, uint32_t* w) {
    detail::nibble_codes(b + 6, w);
    detail::fifth_bits(b + 2, w);
  }
  static Fit fit(const uint8_t* b, int) {
    const float d = half_to_float(load16(b));
    return {d, -16 * d};
  }
};
struct Q5_1 {
  static constexpr int kBlock = 32, kBytes = 24;
  static void codes(const uint8_t* b, int, uint32_t* w) {
    detail::nibble_codes(b + 8, w);
    detail::fifth_bits(b + 4, w);
  }
  static Fit fit(const uint8_t* b, int) { return {half_to_float(load16(b)), half_to_float(load16(b + 2))}; }
};
struct Q8_0 {
  static constexpr int kBlock = 32, kBytes = 34;
  static void codes(const uint8_t* b, int, uint32_t* w) {
    for (int c = 0; c < 8; ++c) w[c] = load32(b + 2 + 4 * c) ^ 0x80808080u;
  }
  static Fit fit(const uint8_t* b, int) {
    const float d = half_to_float(load16(b));
    return {d, -128 * d};
  }
};
struct IQ4_NL {  // sixteen levels spaced unevenly
  static constexpr int kBlock = 32, kBytes = 18;
  static void codes(const uint8_t* b, int, uint32_t* w) {
    static constexpr uint8_t level[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
    uint8_t u[32];
    for (int i = 0; i < 16; ++i) {
      u[i] = level[b[2 + i] & 15];
      u[i + 16] = level[b[2 + i] >> 4];
    }
    std::memcpy(w, u, 32);
  }
  static Fit fit(const uint8_t* b, int half) { return Q8_0::fit(b, half); }
};
struct Q2_K {  // scales[16], qs[64], d, dmin
  static constexpr int kBlock = 256, kBytes = 84;
  static void codes(const uint8_t* b, int g, uint32_t* w) {
    for (int c = 0; c < 8; ++c) w[c] = (load32(b + 16 + 32 * (g >> 2) + 4 * c) >> (2 * (g & 3))) & detail::kPair;
  }
  static Fit fit(const uint8_t* b, int half) {
    const float d = half_to_float(load16(b + 80)), dmin = half_to_float(load16(b + 82));
    return {d * static_cast<float>(b[half] & 15), -(dmin * static_cast<float>(b[half] >> 4))};
  }
};
struct Q3_K {  // hmask[32], qs[64], scales[12], d; codes are shifted by 28 so that w = d*sc*(u - 32)
  static constexpr int kBlock = 256, kBytes = 110;
  static void codes(const uint8_t* b, int g, uint32_t* w) {
    for (int c = 0; c < 8; ++c) {
      const uint32_t low = (load32(b + 32 + 32 * (g >> 2) + 4 * c) >> (2 * (g & 3))) & detail::kPair;
      w[c] = 0x1C1C1C1Cu + low + (((load32(b + 4 * c) >> g) & detail::kBit) << 2);
    }
  }
  static float d(const uint8_t* b) { return half_to_float(load16(b + 108)); }
  static int8_t scale(const uint8_t* b, int half) {
    const int low = (b[96 + (half & 7)] >> (half < 8 ? 0 : 4)) & 15;
    return static_cast<int8_t>((low | (((b[104 + (half & 3)] >> (2 * (half >> 2))) & 3) << 4)) - 32);
  }
  static Fit fit(const uint8_t* b, int half) {
    const float s = d(b) * static_cast<float>(scale(b, half));
    return {s, -32 * s};
  }
};
struct Q4_K {  // d, dmin, scales[12], qs[128]
  static constexpr int kBlock = 256, kBytes = 144;
  static void codes(const uint8_t* b, int g, uint32_t* w) {
    detail::half_byte_codes(b + 16 + 32 * (g >> 1), 4 * (g & 1), w);
  }
  static Fit fit(const uint8_t* b, int half) {
    uint8_t scale, min;
    detail::scale_min_6bit(b + 4, half >> 1, scale, min);
    const float d = half_to_float(load16(b)), dmin = half_to_float(load16(b + 2));
    return {d * static_cast<float>(scale), -(dmin * static_cast<float>(min))};
  }
};
struct Q5_K {  // d, dmin, scales[12], qh[32], qs[128]
  static constexpr int kBlock = 256, kBytes = 176;
  static void codes(const uint8_t* b, int g, uint32_t* w) {
    detail::half_byte_codes(b + 48 + 32 * (g >> 1), 4 * (g & 1), w);
    for (int c = 0; c < 8; ++c) w[c] |= ((load32(b + 16 + 4 * c) >> g) & detail::kBit) << 4;
  }
  static Fit fit(const uint8_t* b, int half) { return Q4_K::fit(b, half); }
};
struct Q6_K {  // ql[128], qh[64], scales[16], d
  static constexpr int kBlock = 256, kBytes = 210;
  static void codes(const uint8_t* b, int g, uint32_t* w) {
    const uint8_t* low = b + 64 * (g >> 2) + 32 * (g & 1);
    const uint8_t* high = b + 128 + 32 * (g >> 2);
    const int shift = 2 * (g & 2);
    for (int c = 0; c < 8; ++c) {
      w[c] = ((load32(low + 4 * c) >> shift) & detail::kNibble) |
             (((load32(high + 4 * c) >> (2 * (g & 3))) & detail::kPair) << 4);
    }
  }
  static float d(const uint8_t* b) { return half_to_float(load16(b + 208)); }
  static int8_t scale(const uint8_t* b, int half) { return static_cast<int8_t>(b[192 + half]); }
  static Fit fit(const uint8_t* b, int half) {
    const float s = d(b) * static_cast<float>(scale(b, half));
    return {s, -32 * s};
  }
};

struct FloatF32 {
  static constexpr int kBlock = 1, kBytes = 4;
  static float value(const uint8_t* p) { return loadf(p); }
};
struct FloatF16 {
  static constexpr int kBlock = 1, kBytes = 2;
  static float value(const uint8_t* p) { return half_to_float(load16(p)); }
};
struct FloatBF16 {
  static constexpr int kBlock = 1, kBytes = 2;
  static float value(const uint8_t* p) { return bfloat_to_float(load16(p)); }
};

// Call `use` with the format of a ggml type id; false when there is none.
template <class Use>
static inline bool with_format(int ggml_type, Use&& use) {
  switch (ggml_type) {
    case 0: use(FloatF32{}); return true;
    case 1: use(FloatF16{}); return true;
    case 2: use(Q4_0{}); return true;
    case 3: use(Q4_1{}); return true;
    case 6: use(Q5_0{}); return true;
    case 7: use(Q5_1{}); return true;
    case 8: use(Q8_0{}); return true;
    case 10: use(Q2_K{}); return true;
    case 11: use(Q3_K{}); return true;
    case 12: use(Q4_K{}); return true;
    case 13: use(Q5_K{}); return true;
    case 14: use(Q6_K{}); return true;
    case 20: use(IQ4_NL{}); return true;
    case 30: use(FloatBF16{}); return true;
  }
  return false;
}

// Bytes of `cols` inputs, 0 for an unknown type or a ragged last block.
static inline size_t row_bytes(int ggml_type, size_t cols) {
  size_t bytes = 0;
  with_format(ggml_type, [&](auto format) {
    using Q = decltype(format);
    if (cols % Q::kBlock == 0) bytes = cols / Q::kBlock * Q::kBytes;
  });
  return bytes;
}

// src: whole blocks; dst: f32 [cols].
static inline void dequantize_row(int ggml_type, const uint8_t* src, float* dst, int cols) {
  with_format(ggml_type, [&](auto format) {
    using Q = decltype(format);
    if constexpr (Q::kBlock == 1) {
      for (int i = 0; i < cols; ++i) dst[i] = Q::value(src + static_cast<size_t>(i) * Q::kBytes);
    } else {
      for (int at = 0; at < cols; at += Q::kBlock, src += Q::kBytes) {
        for (int g = 0; g < Q::kBlock / 32; ++g) {
          uint32_t w[8];
          uint8_t u[32];
          Q::codes(src, g, w);
          std::memcpy(u, w, 32);
          for (int half = 0; half < 2; ++half) {
            const Fit fit = Q::fit(src, 2 * g + half);
            float* to = dst + at + 32 * g + 16 * half;
            for (int i = 0; i < 16; ++i) to[i] = fit.scale * static_cast<float>(u[16 * half + i]) + fit.min;
          }
        }
      }
    }
  });
}

}  // namespace paceline
