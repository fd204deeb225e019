// Sixteen lanes as two AVX2 registers. Included only by isa_avx2.cpp.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace paceline::avx2 {

constexpr const char* kName = "avx2";
constexpr int kRowBlock = 8;
constexpr int kQueryBlock = 2;
constexpr int kWideBias = 0;  // dp_wide multiplies codes - 128

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
struct B {
  __m256i a, b;
};

inline F fzero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F fset(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F fload(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void fstore(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F fmax(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F fmin(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F fabs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline F less_then(F x, F y, F yes, F no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
inline __m128i half_load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F load_f16(const uint16_t* p) { return {_mm256_cvtph_ps(half_load(p)), _mm256_cvtph_ps(half_load(p + 8))}; }
inline F load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half_load(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half_load(p + 8)), 16))};
}
inline void store_f16(uint16_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
}
inline F load_u8(const uint8_t* p) {
  const __m128i bytes = half_load(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline F load_i8(const uint8_t* p) {
  const __m128i bytes = half_load(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline float reduce_add(F x) {
  const __m256 b = _mm256_add_ps(x.a, x.b);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float reduce_max(F x) {
  const __m256 b = _mm256_max_ps(x.a, x.b);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

inline I izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline uint16_t at_least(F x, F y) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ));
  return static_cast<uint16_t>(high << 8 | low);
}
inline I iset(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline F power_of_two(I n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.a, bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.b, bias), 23))};
}
inline void store_i8(int8_t* p, I x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words, words), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(bytes));
}
inline I bits_xor(I x, I y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
inline void istore(uint32_t* p, I x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
inline void mul_wide(__m256i a, __m256i b, __m256i& high, __m256i& low) {
  const __m256i even = _mm256_mul_epu32(a, b), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
// Both halves of unsigned 32 x 32 -> 64 bit products.
inline void mul_wide(I x, uint32_t by, I& high, I& low) {
  const __m256i b = _mm256_set1_epi32(static_cast<int>(by));
  mul_wide(x.a, b, high.a, low.a);
  mul_wide(x.b, b, high.b, low.b);
}
inline int reduce_add(I x) {
  const __m256i b = _mm256_add_epi32(x.a, x.b);
  __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4e));
  c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0xb1));
  return _mm_cvtsi128_si32(c);
}

inline B bload(const uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
inline I as_int(B x) { return {x.a, x.b}; }
inline I bits_and(I x, int mask) {
  return {_mm256_and_si256(x.a, _mm256_set1_epi32(mask)), _mm256_and_si256(x.b, _mm256_set1_epi32(mask))};
}
inline I bits_or(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
inline I shift_right(I x, int count) {
  const __m128i n = _mm_cvtsi32_si128(count);
  return {_mm256_srl_epi32(x.a, n), _mm256_srl_epi32(x.b, n)};
}
inline I shift_left(I x, int count) {
  const __m128i n = _mm_cvtsi32_si128(count);
  return {_mm256_sll_epi32(x.a, n), _mm256_sll_epi32(x.b, n)};
}
inline __m256i low4(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(0x0f)); }
inline B low4(B x) { return {low4(x.a), low4(x.b)}; }
inline B high4(B x) { return {low4(_mm256_srli_epi16(x.a, 4)), low4(_mm256_srli_epi16(x.b, 4))}; }
template <int pair>
inline __m256i with_highs(__m256i nibble, __m256i highs) {
  __m256i moved;
  if constexpr (pair == 0) moved = _mm256_slli_epi16(highs, 4);
  if constexpr (pair == 1) moved = _mm256_slli_epi16(highs, 2);
  if constexpr (pair == 2) moved = highs;
  if constexpr (pair == 3) moved = _mm256_srli_epi16(highs, 2);
  return _mm256_or_si256(nibble, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
}
template <int pair>
inline B with_highs(B nibble, B highs) {
  return {with_highs<pair>(nibble.a, highs.a), with_highs<pair>(nibble.b, highs.b)};
}
inline __m256i broadcast4(const int8_t* four) {
  int32_t bits;
  std::memcpy(&bits, four, 4);
  return _mm256_set1_epi32(bits);
}
inline __m256i pairs(__m256i acc, __m256i unsigned_bytes, __m256i signed_bytes) {
  const __m256i words = _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
  return _mm256_add_epi32(acc, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}
// Codes up to 63: two products of 63 * 127 fit the 16-bit sums of vpmaddubsw.
inline I dp(I acc, B codes, const int8_t* four) {
  const __m256i x = broadcast4(four);
  return {pairs(acc.a, codes.a, x), pairs(acc.b, codes.b, x)};
}
// Codes up to 255 would overflow them, so multiply |code - 128| by x with the sign moved over.
inline I dp_wide(I acc, B codes, const int8_t* four) {
  const __m256i x = broadcast4(four), flip = _mm256_set1_epi8(static_cast<char>(0x80));
  const __m256i a = _mm256_xor_si256(codes.a, flip), b = _mm256_xor_si256(codes.b, flip);
  return {pairs(acc.a, _mm256_abs_epi8(a), _mm256_sign_epi8(x, a)),
          pairs(acc.b, _mm256_abs_epi8(b), _mm256_sign_epi8(x, b))};
}
// Into the second level: the first is too small to hold what must be under way to keep memory busy.
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace paceline::avx2
