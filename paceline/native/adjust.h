// What a request changes about a row of logits before it becomes a distribution; the twin of sample/penalties.py, to
// the bit.
#pragma once

#include <cstdint>

namespace paceline {

struct Span {
  const int32_t* data;
  int count;
};

struct Adjustment {
  Span prompt, output, path;  // the history; what was drafted comes last
  float repetition, presence, frequency;
  Span bias_ids;
  const float* bias;
  bool has_allowed;
  Span allowed, banned, ban_starts, ends;
};

// Copies a row of V logits and changes the copy. Ids outside the row are left out.
void adjust(const float* logits, int vocab, const Adjustment&, float* out);

}  // namespace paceline
