// The ops a program is made of. Each says how many tasks it has for a batch and runs a range of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>

#include "program.h"

namespace paceline {

using Buffers = std::vector<std::unique_ptr<Buffer>>;

struct EmbedOp final : Op {
  std::shared_ptr<EmbedTable> table;
  float scale;
  Buffer* out;
  const char* name() const override { return "embed"; }
  int tasks(const Context& c) const override { return c.batch.flat; }
  void run(Context& c, int begin, int end, int) override {
    for (int r = begin; r < end; ++r) {
      float* row = out->row(r);
      table->row(c.batch.tokens[r], row);
      if (scale != 1.0f)
        for (int k = 0; k < out->width; ++k) row[k] *= scale;
    }
  }
};

// out = norm(x) * weight, per row, or out += that.
struct NormOp final : Op {
  Buffer *x, *out;
  std::vector<float> weight;
  float eps;
  bool accumulate;
  bool quantize = false;
  const char* name() const override { return "norm"; }
  int tasks(const Context& c) const override { return c.batch.rows(x->rows); }
  void run(Context& c, int begin, int end, int thread) override {
    for (int r = begin; r < end; ++r) {
      if (accumulate) {
        float* normed = c.scratch[static_cast<size_t>(thread)].as<float>();
        c.kernels->rms_norm(x->row(r), weight.data(), eps, x->width, normed);
        float* row = out->row(r);
        for (int k = 0; k < x->width; ++k) row[k] += normed[k];
      } else {
        c.kernels->rms_norm(x->row(r), weight.data(), eps, x->width, out->row(r));
      }
      if (quantize) out->quantize_row(*c.kernels, r);
    }
  }
};

struct QuantizeOp final : Op {
  Buffer* x;
  static constexpr int kPart = kStretch;  // columns per task
  const char* name() const override { return "quantize"; }
  int parts() const { return (x->width + kPart - 1) / kPart; }
  int tasks(const Context& c) const override { return c.batch.rows(x->rows) * parts(); }
  int grain(const Context&, int) const override { return 4; }
  void run(Context& c, int begin, int end, int) override {
    for (int task = begin; task < end; ++task) {
      const int part = task % parts() * kPart;
      x->quantize_part(*c.kernels, task / parts(), part, std::min(part + kPart, x->width));
    }
  }
};

// Tiles of 16 outputs are the tasks, each for all rows, so a weight is read once per forward.
// What is fetched ahead from a tile on is as much as the second level of cache keeps beside everything else.
inline Ahead from_tile(const Weight& weight, int tile) {
  constexpr size_t kMost = 192 * 1024;
  const size_t at = static_cast<size_t>(tile) * weight.view().tile_stride;
  return {weight.data() + at, nullptr, std::min(kMost, weight.nbytes() - at)};
}

inline int tile_grain(int tiles, int threads) { return std::clamp(tiles / (threads * 8), 1, 32); }

struct LinearOp final : Op {
  static constexpr int kTilesPerBlock = kBlock / kTile;
  struct Part {
    Weight weight;
    std::vector<float> bias;
    Buffer* out;
  };
  Buffer* x;
  std::vector<Part> parts;
  bool accumulate;
  const char* name() const override { return parts[0].out->rows == Rows::Wanted ? "head" : "linear"; }
  int tasks(const Context& c) const override {
    if (c.batch.rows(x->rows) == 0) return 0;
    int tiles = 0;
    for (const Part& part : parts) tiles += part.weight.tiles();
    return tiles;
  }
  int grain(const Context& c, int threads) const override {
    const int grain = tile_grain(tasks(c), threads);
    return parts[0].out->has_peaks ? (grain + kTilesPerBlock - 1) / kTilesPerBlock * kTilesPerBlock : grain;
  }
  bool is_heavy() const override { return true; }
  Ahead ahead(int begin) const override {
    for (const Part& part : parts) {
      if (begin < part.weight.tiles()) return from_tile(part.weight, begin);
      begin -= part.weight.tiles();
    }
    return {};
  }
  void run(Context& c, int begin, int end, int) override {
    int first = 0;
    const QuantView quant = x->quant();
    for (const Part& part : parts) {
      const int tiles = part.weight.tiles();
      const int from = std::max(begin - first, 0), to = std::min(end - first, tiles);
      if (from < to) {
        const Sink sink{part.out->row(0), part.out->width, part.bias.empty() ? nullptr : part.bias.data(), accumulate};
        c.kernels->linear(part.weight.view(), &quant, x->row(0), c.batch.rows(x->rows), from, to, sink);
        if (part.out->has_peaks) find_peaks(*part.out, c.batch.rows(x->rows), from, to);
      }
      first += tiles;
    }
  }

 private:
  // Of tiles that have just been made, and are still at hand; the first begins a block.
  static void find_peaks(const Buffer& out, int rows, int from, int to) {
    const int first = from * kTile, n = std::min(to * kTile, out.width) - first;
    for (int r = 0; r < rows; ++r) block_maxima(out.row(r) + first, n, out.peaks_of(r) + first / kBlock);
  }
};

struct GatedOp final : Op {
  Buffer *x, *out;
  Weight gate, up;
  Activation activation;
  GatedOp(Weight gate_weight, Weight up_weight) : gate(std::move(gate_weight)), up(std::move(up_weight)) {}
  const char* name() const override { return "gated"; }
  int tasks(const Context& c) const override { return c.batch.rows(x->rows) == 0 ? 0 : gate.tiles(); }
  int grain(const Context& c, int threads) const override { return tile_grain(tasks(c), threads); }
  bool is_heavy() const override { return true; }
  Ahead ahead(int begin) const override {
    if (begin >= gate.tiles()) return {};
    const Ahead one = from_tile(gate, begin), other = from_tile(up, begin);
    return {one.first, other.first, std::min(one.bytes, other.bytes)};
  }
  void run(Context& c, int begin, int end, int) override {
    const QuantView quant = x->quant();
    const Sink sink{out->row(0), out->width, nullptr, false};
    c.kernels->gated(gate.view(), up.view(), &quant, x->row(0), c.batch.rows(x->rows), begin, end, activation, sink);
  }
};

// Norm and rotate queries and keys, and put keys and values into the cache. One task: a row's heads of one kv head.
struct RotateOp final : Op {
  Program::Heads h;
  Buffer *q, *k, *v;
  const char* name() const override { return "rotate"; }
  int tasks(const Context& c) const override { return c.batch.flat * h.kv_heads; }
  int grain(const Context&, int) const override { return 2; }
  void run(Context& c, int begin, int end, int) override {
    const int group = h.heads / h.kv_heads, dim = h.head_dim;
    for (int task = begin; task < end; ++task) {
      const int r = task / h.kv_heads, head = task % h.kv_heads;
      for (int i = 0; i < group; ++i) {
        float* query = q->row(r) + (head * group + i) * dim;
        place(c, query, h.q_norm, r);
        if (h.growth != 0.0f) grow(query, dim, c.batch.positions[r]);
      }
      float* key = k->row(r) + head * dim;
      place(c, key, h.k_norm, r);
      const int64_t slot = c.slot_of[static_cast<size_t>(r)];
      const int page = static_cast<int>(slot / kPage), offset = static_cast<int>(slot % kPage);
      const float* value = v->row(r) + head * dim;
      if (is_beyond(key, dim) || is_beyond(value, dim))
        std::atomic_ref<int>(c.beyond[static_cast<size_t>(r)]).store(h.layer, std::memory_order_relaxed);
      c.kernels->to_f16(value, dim, c.batch.store->values(h.layer, page, head) + static_cast<int64_t>(offset) * dim);
      uint16_t narrow[512];
      c.kernels->to_f16(key, dim, narrow);
      uint16_t* column = c.batch.store->keys(h.layer, page, head) + offset;
      for (int j = 0; j < dim; ++j) column[j * kPage] = narrow[j];
    }
  }

 private:
  static bool is_beyond(const float* x, int n) {
    bool found = false;
    for (int i = 0; i < n; ++i) found |= std::fabs(x[i]) > 65504.0f;
    return found;
  }
  void grow(float* query, int n, int position) const {
    const double times = 1 + static_cast<double>(h.growth) * std::log(1.0 + position / h.period);
    for (int j = 0; j < n; ++j) query[j] *= static_cast<float>(times);
  }
  void place(Context& c, float* head, const std::vector<float>& norm, int r) const {
    if (!norm.empty()) {
      float normed[512];
      c.kernels->rms_norm(head, norm.data(), h.eps, h.head_dim, normed);
      std::copy(normed, normed + h.head_dim, head);
    }
    if (h.rope < 0) return;
    const auto& cos = c.cos[static_cast<size_t>(h.rope)];
    const auto& sin = c.sin[static_cast<size_t>(h.rope)];
    const int half = static_cast<int>(cos.size() / static_cast<size_t>(c.batch.flat));
    c.kernels->rope(head, cos.data() + static_cast<int64_t>(r) * half, sin.data() + static_cast<int64_t>(r) * half,
                    2 * half, h.interleaved);
  }
};

// A task is one kv head of one span of rows: its keys are read once for all their queries.
struct AttentionOp final : Op {
  Program::Attention a;
  Buffer *q, *out;
  const char* name() const override { return "attention"; }
  int tasks(const Context& c) const override { return static_cast<int>(c.spans.size()) * a.kv_heads; }
  void run(Context& c, int begin, int end, int thread) override {
    for (int task = begin; task < end; ++task)
      attend(c, c.spans[static_cast<size_t>(task / a.kv_heads)], task % a.kv_heads, thread);
  }

 private:
  void attend(Context& c, const Span& span, int head, int thread) const;
};

struct GatherOp final : Op {
  Buffer *x, *out;
  const char* name() const override { return "gather"; }
  int tasks(const Context& c) const override { return c.batch.wanted; }
  void run(Context& c, int begin, int end, int) override {
    for (int r = begin; r < end; ++r) {
      const float* row = x->row(c.batch.wanted_rows[r]);
      std::copy(row, row + x->width, out->row(r));
    }
  }
};

struct SoftcapOp final : Op {
  Buffer* x;
  float cap;
  static constexpr int kPart = 8192;
  const char* name() const override { return "softcap"; }
  int parts() const { return (x->width + kPart - 1) / kPart; }
  int tasks(const Context& c) const override { return c.batch.rows(x->rows) * parts(); }
  void run(Context& c, int begin, int end, int) override {
    for (int task = begin; task < end; ++task) {
      const int part = task % parts() * kPart;
      c.kernels->softcap(x->row(task / parts()) + part, std::min(kPart, x->width - part), cap);
    }
  }
};

// Some of a row's logits can never be had. One task: a row.
struct ForbidOp final : Op {
  Buffer* x;
  std::vector<int> ids;
  const char* name() const override { return "forbid"; }
  int tasks(const Context& c) const override { return c.batch.rows(x->rows); }
  void run(Context&, int begin, int end, int) override {
    for (int r = begin; r < end; ++r) {
      float* row = x->row(r);
      for (int id : ids) row[id] = -INFINITY;
      if (!x->has_peaks) continue;
      for (int id : ids) {
        const int first = id / kBlock * kBlock;
        block_maxima(row + first, std::min(kBlock, x->width - first), x->peaks_of(r) + first / kBlock);
      }
    }
  }
};

struct TapOp final : Op {
  Buffer *x, *out;
  int layer;
  const char* name() const override { return "tap"; }
  int tasks(const Context& c) const override {
    const bool asked = std::find(c.taps->begin(), c.taps->end(), layer) != c.taps->end();
    return asked ? c.batch.flat : 0;
  }
  void run(Context&, int begin, int end, int) override {
    for (int r = begin; r < end; ++r) std::copy(x->row(r), x->row(r) + x->width, out->row(r));
  }
};

}  // namespace paceline
