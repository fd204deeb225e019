// Which keys a span of rows attends to, and from where: the cache itself, or a gathered copy of a tree's branch.
#include "ops.h"

namespace paceline {
namespace {

// Scratch of one attention task: scores of a block of queries, then gathered keys and values, then block pointers.
struct Scratch {
  float* scores;
  uint16_t* gathered;
  const uint16_t** keys;
  const uint16_t** values;
};

constexpr int kMostQueries = 8;

}  // namespace

// Bytes of scratch an attention over `blocks` blocks needs, with at most `tail` gathered blocks.
size_t attention_scratch(int blocks, int tail, int head_dim) {
  return static_cast<size_t>(kMostQueries) * blocks * 32 * sizeof(float) +
         static_cast<size_t>(tail) * 2 * 32 * head_dim * sizeof(uint16_t) +
         static_cast<size_t>(blocks) * 2 * sizeof(void*) + 256;
}

void AttentionOp::attend(Context& c, const Span& span, int head, int thread) const {
  const Batch& batch = c.batch;
  const int first_row = batch.starts[span.sequence];
  const int committed = batch.lengths[span.sequence];
  int last_position = 0;
  for (int r = span.begin; r < span.end; ++r) last_position = std::max(last_position, batch.positions[r]);
  const int blocks = last_position / kPage + 1;
  const int tail = span.chain ? blocks : committed / kPage;  // first block that must be gathered
  const int gathered_blocks = blocks - tail;

  uint8_t* memory = c.scratch[static_cast<size_t>(thread)].data();
  Scratch s;
  s.keys = reinterpret_cast<const uint16_t**>(memory);
  s.values = s.keys + blocks;
  s.scores = reinterpret_cast<float*>(memory + align64(static_cast<size_t>(blocks) * 2 * sizeof(void*)));
  s.gathered = reinterpret_cast<uint16_t*>(s.scores + static_cast<size_t>(kMostQueries) * blocks * 32);

  for (int j = 0; j < tail; ++j) {
    const int page = batch.page(span.sequence, j);
    s.keys[j] = batch.store->keys(a.layer, page, head);
    s.values[j] = batch.store->values(a.layer, page, head);
  }
  if (gathered_blocks > 0) {
    // A node of a tree: positions past the committed ones belong to its ancestors, wherever their slots are.
    uint16_t* keys = s.gathered;
    uint16_t* values = keys + static_cast<size_t>(gathered_blocks) * kPage * a.head_dim;
    const auto copy = [&](int position, int64_t slot) {
      const int page = static_cast<int>(slot / kPage), offset = static_cast<int>(slot % kPage);
      const int at = position - tail * kPage;
      const uint16_t* from = batch.store->keys(a.layer, page, head) + offset;
      uint16_t* to = keys + static_cast<size_t>(at / kPage) * kPage * a.head_dim + at % kPage;
      for (int k = 0; k < a.head_dim; ++k) to[k * kPage] = from[k * kPage];
      const uint16_t* value = batch.store->values(a.layer, page, head) + static_cast<int64_t>(offset) * a.head_dim;
      std::copy(value, value + a.head_dim, values + static_cast<size_t>(at) * a.head_dim);
    };
    for (int position = tail * kPage; position < committed; ++position)
      copy(position, static_cast<int64_t>(batch.page(span.sequence, position / kPage)) * kPage + position % kPage);
    for (int node = span.begin - first_row; node >= 0; node = batch.parents[first_row + node])
      copy(batch.positions[first_row + node], c.slot_of[static_cast<size_t>(first_row + node)]);
    for (int j = 0; j < gathered_blocks; ++j) {
      s.keys[tail + j] = keys + static_cast<size_t>(j) * kPage * a.head_dim;
      s.values[tail + j] = values + static_cast<size_t>(j) * kPage * a.head_dim;
    }
  }

  const int group = a.heads / a.kv_heads, count = span.end - span.begin;
  AttentionCall call{};
  call.queries = q->row(span.begin) + head * group * a.head_dim;
  call.tokens = count;
  call.group = group;
  call.head_dim = a.head_dim;
  call.token_stride = q->width;
  call.out_token_stride = out->width;
  call.last = batch.positions + span.begin;
  call.window = a.window;
  call.scale = a.scale;
  call.softcap = a.softcap;
  call.blocks = {s.keys, s.values};
  call.out = out->row(span.begin) + head * group * a.head_dim;
  call.scores = s.scores;
  c.kernels->attention(call);
}

}  // namespace paceline
