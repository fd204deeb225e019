// Sixteen lanes on AVX-512 with VNNI. Included only by isa_avx512.cpp, inside its namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace paceline::avx512 {

constexpr const char* kName = "avx512";
constexpr int kRowBlock = 8;    // rows of activations per pass over a tile: 16 of 32 registers accumulate
constexpr int kQueryBlock = 8;  // queries per pass over a block of keys
constexpr int kWideBias = 128;  // dp_wide multiplies codes as 0..255; the accumulator starts at -128 * sum

using F = __m512;
using I = __m512i;
using B = __m512i;

inline F fzero() { return _mm512_setzero_ps(); }
inline F fset(float a) { return _mm512_set1_ps(a); }
inline F fload(const float* p) { return _mm512_loadu_ps(p); }
inline void fstore(float* p, F a) { _mm512_storeu_ps(p, a); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F fmax(F a, F b) { return _mm512_max_ps(a, b); }
inline F fmin(F a, F b) { return _mm512_min_ps(a, b); }
inline F fabs(F a) { return _mm512_abs_ps(a); }
inline F less_then(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
inline F load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline F load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline void store_f16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline F load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline F load_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// Reductions fold halves in one fixed order.
inline float reduce_add(F a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float reduce_max(F a) { return _mm512_reduce_max_ps(a); }

inline I izero() { return _mm512_setzero_si512(); }
inline uint16_t at_least(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
#define PACELINE_KEEPS
// Writes first + i for each bit i set, looking at every step-th; returns how many. `out` has room for 64.
template <int step>
int keep(uint64_t bits, int first, int32_t* out) {
  const I places = _mm512_mullo_epi32(_mm512_set1_epi32(step),
                                      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  if constexpr (step == 4) bits = _pext_u64(bits, 0x1111111111111111);
  int count = 0;
  for (int i = 0; i < 64 / step; i += 16) {
    const __mmask16 some = static_cast<__mmask16>(bits >> i);
    const I ids = _mm512_add_epi32(places, _mm512_set1_epi32(first + step * i));
    _mm512_storeu_si512(out + count, _mm512_maskz_compress_epi32(some, ids));  // a masked store is slow on some
    count += __builtin_popcount(some);
  }
  return count;
}
inline I iset(int a) { return _mm512_set1_epi32(a); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline I to_int(F a) { return _mm512_cvtps_epi32(a); }  // round to nearest, ties to even
inline F power_of_two(I n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, iset(127)), 23)); }
inline void store_i8(int8_t* p, I a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a)); }
inline I bits_xor(I a, I b) { return _mm512_xor_si512(a, b); }
inline void istore(uint32_t* p, I a) { _mm512_storeu_si512(p, a); }
// Both halves of unsigned 32 x 32 -> 64 bit products.
inline void mul_wide(I a, uint32_t by, I& high, I& low) {
  const I b = iset(static_cast<int>(by));
  const I even = _mm512_mul_epu32(a, b), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
inline int reduce_add(I a) { return _mm512_reduce_add_epi32(a); }

inline B bload(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline I as_int(B a) { return a; }
inline I bits_and(I a, int mask) { return _mm512_and_si512(a, iset(mask)); }
inline I bits_or(I a, I b) { return _mm512_or_si512(a, b); }
inline I shift_right(I a, int count) { return _mm512_srlv_epi32(a, iset(count)); }
inline I shift_left(I a, int count) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(count)); }
inline B low4(B a) { return _mm512_and_si512(a, _mm512_set1_epi8(0x0f)); }
inline B high4(B a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(0x0f)); }
// Codes of six bits: four from `nibble` (clean), two from bits 2*pair of `highs`.
template <int pair>
inline B with_highs(B nibble, B highs) {
  B moved;
  if constexpr (pair == 0) moved = _mm512_slli_epi16(highs, 4);
  if constexpr (pair == 1) moved = _mm512_slli_epi16(highs, 2);
  if constexpr (pair == 2) moved = highs;
  if constexpr (pair == 3) moved = _mm512_srli_epi16(highs, 2);
  return _mm512_ternarylogic_epi32(nibble, moved, _mm512_set1_epi8(0x30), 0xf8);  // nibble | (moved & 0x30)
}
inline I broadcast4(const int8_t* four) {
  int32_t bits;
  std::memcpy(&bits, four, 4);
  return _mm512_set1_epi32(bits);
}
inline I dp(I acc, B codes, const int8_t* four) { return _mm512_dpbusd_epi32(acc, codes, broadcast4(four)); }
inline I dp_wide(I acc, B codes, const int8_t* four) { return dp(acc, codes, four); }
// Into the second level: the first is too small to hold what must be under way to keep memory busy.
inline void prefetch(const void* p) {
  // Not the intrinsic: compilers move that among the arithmetic, where it comes late (docs/log.md).
  __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)) : "memory");
}

}  // namespace paceline::avx512
