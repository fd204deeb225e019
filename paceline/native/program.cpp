#include "program.h"

#include <cmath>
#include <map>
#include <stdexcept>

#include "ops.h"

namespace paceline {

size_t attention_scratch(int blocks, int tail, int head_dim);

void Buffer::reserve(int count) {
  if (count <= capacity) return;
  const int wanted = std::max(count, std::min(2 * capacity, 4096));
  const size_t rows = static_cast<size_t>(wanted), cells = rows * static_cast<size_t>(width);
  values = Memory(cells * sizeof(float));
  if (has_peaks) peaks = Memory(rows * static_cast<size_t>(blocks_of(width)) * sizeof(int32_t));
  if (quantized) {
    codes = Memory(cells);
    scale = Memory(cells / kGroup * sizeof(float));
    sum = Memory(cells / kGroup * sizeof(float));
    offset32 = Memory(cells / kGroup * 2 * sizeof(int32_t));
    offset128 = Memory(cells / kGroup * sizeof(int32_t));
    const size_t outliers = rows * static_cast<size_t>(outliers_of(width));
    outlier = Memory(outliers * sizeof(int32_t));
    outlier_value = Memory(outliers * sizeof(float));
  }
  capacity = wanted;
}

void Buffer::quantize_row(const Kernels& kernels, int r) const { quantize_part(kernels, r, 0, width); }

void Buffer::quantize_part(const Kernels& kernels, int r, int begin, int end) const {
  const int64_t cell = static_cast<int64_t>(r) * width + begin, group = cell / kGroup;
  const int64_t first = static_cast<int64_t>(r) * outliers_of(width) + outliers_of(begin);
  kernels.quantize(row(r) + begin, end - begin,
                   {codes.as<int8_t>() + cell, scale.as<float>() + group, sum.as<float>() + group,
                    offset32.as<int32_t>() + 2 * group, offset128.as<int32_t>() + group, outlier.as<int32_t>() + first,
                    outlier_value.as<float>() + first},
                   begin);
}

// ---- recording --------------------------------------------------------------------------------------------------

int Program::buffer(int width, Rows rows) {
  if (width <= 0) throw std::invalid_argument("a buffer needs a positive width");
  buffers_.push_back(std::make_unique<Buffer>());
  buffers_.back()->width = width;
  buffers_.back()->rows = rows;
  fresh_.push_back(false);
  return static_cast<int>(buffers_.size()) - 1;
}

int Program::rope(std::vector<float> inverse_frequencies, float multiplier) {
  ropes_.push_back({std::move(inverse_frequencies), multiplier});
  return static_cast<int>(ropes_.size()) - 1;
}

void Program::push(std::unique_ptr<Op> op, int writes) {
  ops_.push_back(std::move(op));
  if (writes >= 0) fresh_[static_cast<size_t>(writes)] = false;
}

// The next op reads the quantised twin of x: a norm just recorded fills it on the way, else an op of its own does.
void Program::need_quantized(int x) {
  if (fresh_[static_cast<size_t>(x)]) return;
  Buffer& buffer = at(x);
  if (buffer.width % kGroup != 0) throw std::invalid_argument("packed weights need inputs in groups of 32");
  buffer.quantized = true;
  auto* norm = ops_.empty() ? nullptr : dynamic_cast<NormOp*>(ops_.back().get());
  if (norm && norm->out == &buffer) {
    norm->quantize = true;
  } else {
    auto op = std::make_unique<QuantizeOp>();
    op->x = &buffer;
    ops_.push_back(std::move(op));
  }
  fresh_[static_cast<size_t>(x)] = true;
}

void Program::embed(std::shared_ptr<EmbedTable> table, float scale, int out) {
  if (table->cols() != at(out).width) throw std::invalid_argument("embedding width differs from its buffer's");
  auto op = std::make_unique<EmbedOp>();
  op->table = std::move(table);
  op->scale = scale;
  op->out = &at(out);
  push(std::move(op), out);
}

void Program::rms_norm(int x, std::vector<float> weight, float eps, int out, bool accumulate) {
  if (static_cast<int>(weight.size()) != at(x).width || at(out).width != at(x).width || at(out).rows != at(x).rows)
    throw std::invalid_argument("norm weight, input and output differ in width");
  auto op = std::make_unique<NormOp>();
  op->x = &at(x);
  op->out = &at(out);
  op->weight = std::move(weight);
  op->eps = eps;
  op->accumulate = accumulate;
  push(std::move(op), out);
}

void Program::linear(int x, std::vector<Part> parts, bool accumulate) {
  if (parts.empty()) throw std::invalid_argument("linear without weights");
  auto op = std::make_unique<LinearOp>();
  op->x = &at(x);
  op->accumulate = accumulate;
  std::vector<int> outs;
  for (Part& part : parts) {
    const Weight& weight = part.weight;
    if (weight.cols() != at(x).width || weight.rows() != at(part.out).width || at(part.out).rows != at(x).rows)
      throw std::invalid_argument("linear weight does not fit its buffers");
    if (!part.bias.empty() && static_cast<int>(part.bias.size()) != weight.rows())
      throw std::invalid_argument("bias length differs from the weight's rows");
    if (at(part.out).has_peaks && parts.size() > 1)
      throw std::invalid_argument("peaks are kept of one weight's product only");
    if (!is_float(weight.kind())) need_quantized(x);
    outs.push_back(part.out);
    op->parts.push_back({part.weight, std::move(part.bias), &at(part.out)});
  }
  push(std::move(op), -1);
  for (int out : outs) fresh_[static_cast<size_t>(out)] = false;
}

void Program::gated(int x, Weight gate, Weight up, Activation activation, int out) {
  if (gate.rows() != up.rows() || gate.cols() != up.cols() || gate.cols() != at(x).width ||
      gate.rows() != at(out).width)
    throw std::invalid_argument("gate and up weights do not fit each other or their buffers");
  if (!is_float(gate.kind()) || !is_float(up.kind())) need_quantized(x);
  auto op = std::make_unique<GatedOp>(std::move(gate), std::move(up));
  op->x = &at(x);
  op->out = &at(out);
  op->activation = activation;
  push(std::move(op), out);
}

void Program::rotate_and_store(Heads heads) {
  if (heads.head_dim > 512 || heads.head_dim % 32 || heads.heads % heads.kv_heads)
    throw std::invalid_argument("head size must be a multiple of 32 up to 512, heads a multiple of kv heads");
  if (heads.rope >= static_cast<int>(ropes_.size())) throw std::invalid_argument("no such rope table");
  if (heads.period < 1) throw std::invalid_argument("queries need a period of at least one position");
  if (at(heads.q).width != heads.heads * heads.head_dim || at(heads.k).width != heads.kv_heads * heads.head_dim ||
      at(heads.v).width != heads.kv_heads * heads.head_dim)
    throw std::invalid_argument("query, key or value buffer has the wrong width");
  auto op = std::make_unique<RotateOp>();
  op->q = &at(heads.q);
  op->k = &at(heads.k);
  op->v = &at(heads.v);
  op->h = std::move(heads);
  push(std::move(op), -1);
}

void Program::attention(Attention attention) {
  if (attention.head_dim > 512 || attention.head_dim % 32 || attention.heads % attention.kv_heads ||
      at(attention.q).width != attention.heads * attention.head_dim || at(attention.out).width != at(attention.q).width)
    throw std::invalid_argument("heads do not fit the query or the output buffer");
  auto op = std::make_unique<AttentionOp>();
  op->q = &at(attention.q);
  op->out = &at(attention.out);
  op->a = attention;
  push(std::move(op), attention.out);
}

void Program::gather(int x, int out) {
  auto op = std::make_unique<GatherOp>();
  op->x = &at(x);
  op->out = &at(out);
  push(std::move(op), out);
}

void Program::keep_peaks(int x) {
  at(x).has_peaks = true;
  at(x).capacity = 0;  // what was reserved has no room for them
}

void Program::softcap(int x, float cap) {
  auto op = std::make_unique<SoftcapOp>();
  op->x = &at(x);
  op->cap = cap;
  push(std::move(op), x);
}

void Program::forbid(int x, std::vector<int> ids) {
  for (int id : ids)
    if (id < 0 || id >= at(x).width) throw std::invalid_argument("a row has no such logit to forbid");
  auto op = std::make_unique<ForbidOp>();
  op->x = &at(x);
  op->ids = std::move(ids);
  push(std::move(op), x);
}

void Program::tap(int x, int layer) {
  const int out = buffer(at(x).width, Rows::Flat);
  auto op = std::make_unique<TapOp>();
  op->x = &at(x);
  op->out = &at(out);
  op->layer = layer;
  taps_.emplace_back(layer, out);
  push(std::move(op), out);
}

// ---- running ----------------------------------------------------------------------------------------------------

namespace {

void check(const Batch& b, int vocab) {
  const auto fail = [](const char* what) { throw std::invalid_argument(what); };
  if (b.starts[0] != 0 || b.starts[b.sequences] != b.flat) fail("batch starts must run from 0 to the number of rows");
  for (int s = 0; s < b.sequences; ++s) {
    if (b.starts[s + 1] <= b.starts[s]) fail("every sequence needs at least one row");
    if (b.starts[s + 1] > b.flat) fail("batch starts must run from 0 to the number of rows");
    if (b.lengths[s] < 0) fail("negative cache length");
    const int64_t end = static_cast<int64_t>(b.lengths[s]) + b.starts[s + 1] - b.starts[s];
    if ((end + kPage - 1) / kPage > b.pages_per_sequence) fail("page table is shorter than the sequence");
    for (int64_t j = 0; j < (end + kPage - 1) / kPage; ++j)
      if (b.page(s, static_cast<int>(j)) < 0 || b.page(s, static_cast<int>(j)) >= b.store->pages())
        fail("page outside the cache");
    for (int r = b.starts[s]; r < b.starts[s + 1]; ++r) {
      const int node = r - b.starts[s], parent = b.parents[r];
      if (node == 0 ? parent != -1 : parent < 0 || parent >= node) fail("parents must precede their children");
      const int above = node == 0 ? b.lengths[s] - 1 : b.positions[b.starts[s] + parent];
      if (b.positions[r] != above + 1) fail("a position must follow its parent's");
      if (b.tokens[r] < 0 || b.tokens[r] >= vocab) fail("token outside the vocabulary");
    }
  }
  for (int r = 0; r < b.wanted; ++r)
    if (b.wanted_rows[r] < 0 || b.wanted_rows[r] >= b.flat) fail("wanted row outside the batch");
}

}  // namespace

void Program::prepare(const Batch& batch, const std::vector<int>& taps) {
  Context& c = context_;
  c.batch = batch;
  c.taps = &taps;
  for (auto& buffer : buffers_) buffer->reserve(batch.rows(buffer->rows));

  c.slot_of.resize(static_cast<size_t>(batch.flat));
  c.beyond.assign(static_cast<size_t>(batch.flat), -1);
  c.spans.clear();
  int most_blocks = 1, most_tail = 0, head_dim = batch.store->head_dim(), group = 1, width = 0;
  for (const auto& op : ops_)
    if (const auto* attention = dynamic_cast<const AttentionOp*>(op.get()))
      group = attention->a.heads / attention->a.kv_heads;
  for (const auto& buffer : buffers_) width = std::max(width, buffer->width);
  const int together = std::max(1, 16 / group);  // rows per attention task: enough queries to share each key's load
  for (int s = 0; s < batch.sequences; ++s) {
    const int begin = batch.starts[s], end = batch.starts[s + 1];
    // Rows 0..k whose ancestors are exactly the rows before them form the chain part of the tree.
    int r = begin;
    for (; r < end; ++r) {
      const int node = r - begin;
      const int slot = batch.lengths[s] + node;
      c.slot_of[static_cast<size_t>(r)] = static_cast<int64_t>(batch.page(s, slot / kPage)) * kPage + slot % kPage;
    }
    int chain = begin;
    while (chain < end && batch.parents[chain] == chain - begin - 1) ++chain;
    for (r = begin; r < chain; r += together) c.spans.push_back({s, r, std::min(r + together, chain), true});
    for (r = chain; r < end; ++r) c.spans.push_back({s, r, r + 1, false});
    int deepest = 0;
    for (r = begin; r < end; ++r) deepest = std::max(deepest, batch.positions[r]);
    most_blocks = std::max(most_blocks, deepest / kPage + 1);
    if (chain < end) most_tail = std::max(most_tail, deepest / kPage + 1 - batch.lengths[s] / kPage);
  }
  const size_t bytes =
      std::max(attention_scratch(most_blocks, most_tail, head_dim) + 64, static_cast<size_t>(width) * sizeof(float));
  c.scratch.resize(static_cast<size_t>(pool_->threads()));
  for (Memory& memory : c.scratch)
    if (memory.size() < bytes) memory = Memory(bytes * 5 / 4);

  c.cos.resize(ropes_.size());
  c.sin.resize(ropes_.size());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const auto& frequencies = ropes_[i].inverse_frequencies;
    const size_t half = frequencies.size();
    c.cos[i].resize(half * static_cast<size_t>(batch.flat));
    c.sin[i].resize(half * static_cast<size_t>(batch.flat));
    for (int r = 0; r < batch.flat; ++r)
      for (size_t k = 0; k < half; ++k) {
        const double angle = static_cast<double>(batch.positions[r]) * static_cast<double>(frequencies[k]);
        c.cos[i][static_cast<size_t>(r) * half + k] = static_cast<float>(std::cos(angle) * ropes_[i].multiplier);
        c.sin[i][static_cast<size_t>(r) * half + k] = static_cast<float>(std::sin(angle) * ropes_[i].multiplier);
      }
  }
}

// A cache made for another model has its heads elsewhere, or none.
void Program::check_store(const KVStore& store) const {
  for (const auto& op : ops_)
    if (const auto* rotate = dynamic_cast<const RotateOp*>(op.get()))
      if (rotate->h.layer < 0 || rotate->h.layer >= store.layers() || rotate->h.kv_heads != store.kv_heads() ||
          rotate->h.head_dim != store.head_dim())
        throw std::invalid_argument("the cache was made for another model");
}

// One run, as the pool sees it.
class Program::Pass final : public Work {
 public:
  explicit Pass(Program& program) : program_(program) {}

  void run(int phase, int begin, int end, int thread) override { op(phase).run(program_.context_, begin, end, thread); }

  Ahead ahead(int phase, int thread) const override {
    const Op* next = program_.heavy_after_[program_.op_of_[static_cast<size_t>(phase)]];
    return next ? next->ahead(thread * next->grain(program_.context_, program_.pool_->threads())) : Ahead{};
  }

  void finished(int phase) override {
    if (!program_.profiling_) return;
    const auto now = std::chrono::steady_clock::now();
    program_.seconds_[program_.op_of_[static_cast<size_t>(phase)]] +=
        std::chrono::duration<double>(now - before_).count();
    before_ = now;
  }

 private:
  Op& op(int phase) const { return *program_.ops_[program_.op_of_[static_cast<size_t>(phase)]]; }

  Program& program_;
  std::chrono::steady_clock::time_point before_ = std::chrono::steady_clock::now();
};

void Program::run(const Batch& batch, const std::vector<int>& taps, int vocab) {
  const std::lock_guard<std::mutex> mine(turn_);
  check(batch, vocab);
  check_store(*batch.store);
  prepare(batch, taps);
  seconds_.resize(ops_.size(), 0.0);
  if (heavy_after_.size() != ops_.size()) {
    heavy_after_.assign(ops_.size(), nullptr);
    for (size_t i = ops_.size(); i-- > 1;) heavy_after_[i - 1] = ops_[i]->is_heavy() ? ops_[i].get() : heavy_after_[i];
  }
  plan();
  Pass pass(*this);
  pool_->run(pass, phases_, reinterpret_cast<uintptr_t>(this) ^ static_cast<uint64_t>(batch.flat) << 48);
}

// What the pool needs of a run before it begins, so that a thread that comes late need not ask.
void Program::plan() {
  phases_.clear();
  op_of_.clear();
  for (size_t i = 0; i < ops_.size(); ++i) {
    const int tasks = ops_[i]->tasks(context_);
    if (tasks == 0) continue;
    phases_.push_back({tasks, ops_[i]->grain(context_, pool_->threads())});
    op_of_.push_back(i);
  }
}

std::vector<std::pair<int, int>> Program::beyond() const {
  std::vector<std::pair<int, int>> found;
  for (size_t r = 0; r < context_.beyond.size(); ++r)
    if (context_.beyond[r] >= 0) found.emplace_back(static_cast<int>(r), context_.beyond[r]);
  return found;
}

std::vector<std::pair<std::string, double>> Program::profile() const {
  std::map<std::string, double> sums;
  for (size_t i = 0; i < seconds_.size(); ++i) sums[ops_[i]->name()] += seconds_[i];
  return {sums.begin(), sums.end()};
}

}  // namespace paceline
