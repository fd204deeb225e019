// The table of kernels that one instruction set fills. Everything works on whole rows of f32 or of quantised
// activations; which rows share a call never changes any row's arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"

namespace paceline {

constexpr int kPage = 32;  // tokens per page of the key-value cache, and keys per block of attention

// Bytes of weights to fetch ahead of the arithmetic, of all kinds and of those of six bits: chosen by measurement for
// each maker's processors (docs/log.md), for what suits one costs another a sixth.
extern const size_t kAhead, kAheadW6K;

enum class Activation : int { Silu = 0, GeluTanh = 1 };

// What becomes of a tile's product: out = acc + bias, or out += acc + bias.
struct Sink {
  float* out;  // [T, stride]
  int stride;
  const float* bias;  // [rows] or null
  bool accumulate;
};

// Keys and values as one row's attention sees them: block j holds positions 32 j ... 32 j + 31.
struct KeyBlocks {
  const uint16_t* const* keys;    // f16 [d][32] each
  const uint16_t* const* values;  // f16 [32][d] each
};

struct AttentionCall {
  const float* queries;  // [count] rows of head_dim floats, `query_stride` apart within a token, see below
  int tokens, group, head_dim;
  int64_t token_stride, out_token_stride;  // floats between tokens; heads of a group are head_dim apart
  const int* last;                         // [tokens] position of each token: keys 0..last are visible
  int window;                              // 0, or how many positions back are visible, itself included
  float scale, softcap;
  KeyBlocks blocks;
  float* out;
  float* scores;  // scratch [tokens * group, blocks * 32]
};

struct Kernels {
  const char* name;
  // Product of tiles [begin, end) with T rows. `quant` for packed kinds, `x` (f32 [T, cols]) for float kinds.
  void (*linear)(const WeightView&, const QuantView* quant, const float* x, int rows, int begin, int end, const Sink&);
  // out = activation(gate x) * (up x), tile by tile.
  void (*gated)(const WeightView& gate, const WeightView& up, const QuantView*, const float* x, int rows, int begin,
                int end, Activation, const Sink&);
  // One row, or whole stretches of it: x is its part from column `first` on.
  void (*quantize)(const float* x, int cols, const QuantRow& out, int first);
  void (*rms_norm)(const float* x, const float* weight, float eps, int cols, float* out);    // one row
  void (*rope)(float* x, const float* cos, const float* sin, int rotary, bool interleaved);  // one head
  void (*to_f16)(const float* x, int n, uint16_t* out);                                      // n % 16 == 0
  void (*softcap)(float* x, int n, float cap);
  void (*attention)(const AttentionCall&);
  // Writes first + i for each group of tokens x[i] to x[i + group - 1], of 64, one of which is at least `floor` and
  // below `end`; returns how many. A group has one or four tokens; `out` has room for 64 numbers.
  int (*reaching)(const float* x, float floor, float end, int first, int group, int32_t* out);
  // The words of keyed noise of 32 counters: out[32 lane + i] belongs to token 4 counters[i] + lane.
  void (*philox)(uint64_t seed, uint32_t stream, uint64_t position, const uint32_t* counters, uint32_t* out);
};

namespace portable {
extern const Kernels table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

}  // namespace paceline
