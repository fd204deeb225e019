// Sixteen lanes in plain C++: the path for processors without a tuned one, and the reading copy of what lanes mean.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "formats.h"

namespace paceline::portable {

constexpr const char* kName = "portable";
constexpr int kRowBlock = 2;
constexpr int kQueryBlock = 2;
constexpr int kWideBias = 0;

struct F {
  float v[16];
};
struct I {
  int32_t v[16];
};
struct B {
  uint8_t v[64];
};

#define PACELINE_LANES(expression)                      \
  F out;                                                \
  for (int i = 0; i < 16; ++i) out.v[i] = (expression); \
  return out

inline F fset(float a) { PACELINE_LANES(a); }
inline F fzero() { return fset(0.0f); }
inline F fload(const float* p) { PACELINE_LANES(p[i]); }
inline void fstore(float* p, const F& a) { std::memcpy(p, a.v, sizeof a.v); }
inline F add(const F& a, const F& b) { PACELINE_LANES(a.v[i] + b.v[i]); }
inline F sub(const F& a, const F& b) { PACELINE_LANES(a.v[i] - b.v[i]); }
inline F mul(const F& a, const F& b) { PACELINE_LANES(a.v[i] * b.v[i]); }
inline F div(const F& a, const F& b) { PACELINE_LANES(a.v[i] / b.v[i]); }
inline F fma(const F& a, const F& b, const F& c) { PACELINE_LANES(a.v[i] * b.v[i] + c.v[i]); }
inline F fmax(const F& a, const F& b) { PACELINE_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline F fmin(const F& a, const F& b) { PACELINE_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline F fabs(const F& a) { PACELINE_LANES(std::fabs(a.v[i])); }
inline F less_then(const F& a, const F& b, const F& yes, const F& no) {
  PACELINE_LANES(a.v[i] < b.v[i] ? yes.v[i] : no.v[i]);
}
inline F load_f16(const uint16_t* p) { PACELINE_LANES(half_to_float(p[i])); }
inline F load_bf16(const uint16_t* p) { PACELINE_LANES(bfloat_to_float(p[i])); }
inline void store_f16(uint16_t* p, const F& a) {
  for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.v[i]);
}
inline F load_u8(const uint8_t* p) { PACELINE_LANES(static_cast<float>(p[i])); }
inline F load_i8(const uint8_t* p) { PACELINE_LANES(static_cast<float>(static_cast<int8_t>(p[i]))); }
inline float reduce_add(const F& a) {
  float v[16];
  std::memcpy(v, a.v, sizeof v);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}
inline float reduce_max(const F& a) {
  float best = a.v[0];
  for (int i = 1; i < 16; ++i) best = a.v[i] > best ? a.v[i] : best;
  return best;
}
inline F to_float(const I& a) { PACELINE_LANES(static_cast<float>(a.v[i])); }
inline F power_of_two(const I& n) { PACELINE_LANES(std::ldexp(1.0f, n.v[i])); }
#undef PACELINE_LANES

inline uint16_t at_least(const F& a, const F& b) {
  uint16_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint16_t>((a.v[i] >= b.v[i]) << i);
  return bits;
}
inline I iset(int a) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = a;
  return out;
}
inline I izero() { return iset(0); }
inline I to_int(const F& a) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int32_t>(std::nearbyint(a.v[i]));
  return out;
}
inline void store_i8(int8_t* p, const I& a) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}
inline I bits_xor(const I& a, const I& b) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] ^ b.v[i];
  return out;
}
inline void istore(uint32_t* p, const I& a) { std::memcpy(p, a.v, sizeof a.v); }
inline void mul_wide(const I& a, uint32_t by, I& high, I& low) {
  for (int i = 0; i < 16; ++i) {
    const uint64_t product = static_cast<uint64_t>(static_cast<uint32_t>(a.v[i])) * by;
    high.v[i] = static_cast<int32_t>(product >> 32);
    low.v[i] = static_cast<int32_t>(product);
  }
}
inline int reduce_add(const I& a) {
  int sum = 0;
  for (int i = 0; i < 16; ++i) sum += a.v[i];
  return sum;
}

inline B bload(const uint8_t* p) {
  B out;
  std::memcpy(out.v, p, 64);
  return out;
}
inline I as_int(const B& a) {
  I out;
  std::memcpy(out.v, a.v, sizeof out.v);
  return out;
}
inline I bits_and(const I& a, int mask) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] & mask;
  return out;
}
inline I bits_or(const I& a, const I& b) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = a.v[i] | b.v[i];
  return out;
}
inline I shift_right(const I& a, int count) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> count);
  return out;
}
inline I shift_left(const I& a, int count) {
  I out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << count);
  return out;
}
inline B low4(const B& a) {
  B out;
  for (int i = 0; i < 64; ++i) out.v[i] = a.v[i] & 15;
  return out;
}
inline B high4(const B& a) {
  B out;
  for (int i = 0; i < 64; ++i) out.v[i] = a.v[i] >> 4;
  return out;
}
template <int pair>
inline B with_highs(const B& nibble, const B& highs) {
  B out;
  for (int i = 0; i < 64; ++i) out.v[i] = static_cast<uint8_t>(nibble.v[i] | ((highs.v[i] >> (2 * pair)) & 3) << 4);
  return out;
}
template <int bias>
inline I products(const I& acc, const B& codes, const int8_t* four) {
  I out;
  for (int o = 0; o < 16; ++o) {
    int sum = acc.v[o];
    for (int j = 0; j < 4; ++j) sum += (codes.v[4 * o + j] - bias) * four[j];
    out.v[o] = sum;
  }
  return out;
}
inline I dp(const I& acc, const B& codes, const int8_t* four) { return products<0>(acc, codes, four); }
inline I dp_wide(const I& acc, const B& codes, const int8_t* four) { return products<128>(acc, codes, four); }
inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace paceline::portable
