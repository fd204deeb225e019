// A forward pass as a list of ops over row buffers: recorded once per model, then run on any batch of trees.
//
// The Python decoder (model/decoder.py) records it, so the architecture is readable in one place and a forward costs
// one call. Every op splits into independent tasks that the pool hands out; a barrier follows each op.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache.h"
#include "kernels.h"
#include "memory.h"
#include "pool.h"
#include "row.h"
#include "weight.h"

namespace paceline {

enum class Rows : int { Flat = 0, Wanted = 1 };  // one row per token of the batch, or per wanted row

// f32 [rows, width], with its quantised twin when a packed weight reads it.
struct Buffer {
  int width;
  Rows rows;
  int capacity = 0;
  bool quantized = false;  // some op reads the twin
  bool has_peaks = false;  // the largest keys of a row's blocks are kept, see row.h
  Memory peaks, values, codes, scale, sum, offset32, offset128, outlier, outlier_value;

  int32_t* peaks_of(int r) const { return peaks.as<int32_t>() + static_cast<int64_t>(r) * blocks_of(width); }
  float* row(int r) const { return values.as<float>() + static_cast<int64_t>(r) * width; }
  QuantView quant() const {
    return {codes.as<int8_t>(),      scale.as<float>(),     sum.as<float>(),           offset32.as<int32_t>(),
            offset128.as<int32_t>(), outlier.as<int32_t>(), outlier_value.as<float>(), width};
  }
  void reserve(int count);
  void quantize_row(const Kernels& kernels, int r) const;
  void quantize_part(const Kernels& kernels, int r, int begin, int end) const;  // columns; begin at a stretch
};

struct RopeTable {
  std::vector<float> inverse_frequencies;
  float multiplier;
};

// What one call is about: B sequences, each extended by a tree, laid flat over T rows.
struct Batch {
  int sequences = 0, flat = 0, wanted = 0, pages_per_sequence = 0;
  const int32_t *tokens = nullptr, *positions = nullptr, *parents = nullptr, *starts = nullptr, *wanted_rows = nullptr,
                *tables = nullptr, *lengths = nullptr;
  KVStore* store = nullptr;

  int rows(Rows kind) const { return kind == Rows::Flat ? flat : wanted; }
  int page(int sequence, int block) const {
    return tables[static_cast<int64_t>(sequence) * pages_per_sequence + block];
  }
};

// A run of rows of one sequence whose keys lie in the same slots: a chain, or a single node of a tree.
struct Span {
  int sequence, begin, end;
  bool chain;  // every visible in-flight token sits at the slot of its position
};

struct Context {
  Batch batch;
  const Kernels* kernels = nullptr;
  std::vector<int64_t> slot_of;  // [T] where the row's keys and values go
  std::vector<Span> spans;
  std::vector<std::vector<float>> cos, sin;  // per rope table [T, rotary/2]
  std::vector<Memory> scratch;               // per thread
  const std::vector<int>* taps = nullptr;    // layers whose output is kept
  std::vector<int> beyond;  // [T] a layer with a key or value of the row that the cache cannot hold, -1 for none
};

class Op {
 public:
  virtual ~Op() = default;
  virtual const char* name() const = 0;
  virtual int tasks(const Context&) const = 0;
  virtual int grain(const Context&, int threads) const {
    (void)threads;
    return 1;
  }
  virtual void run(Context&, int begin, int end, int thread) = 0;
  // The memory that task `begin` will read, for a thread with nothing else to do.
  virtual Ahead ahead(int begin) const {
    (void)begin;
    return {};
  }
  virtual bool is_heavy() const { return false; }  // reads weights: worth fetching ahead for
};

class Program {
 public:
  Program(std::shared_ptr<Pool> pool, const Kernels* kernels) : pool_(std::move(pool)) { context_.kernels = kernels; }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int buffer(int width, Rows rows);
  int rope(std::vector<float> inverse_frequencies, float multiplier);

  void embed(std::shared_ptr<EmbedTable> table, float scale, int out);
  void rms_norm(int x, std::vector<float> weight, float eps, int out, bool accumulate);
  struct Part {
    Weight weight;
    std::vector<float> bias;
    int out;
  };
  void linear(int x, std::vector<Part> parts, bool accumulate);
  void keep_peaks(int x);  // whenever a weight's product is put there
  void gated(int x, Weight gate, Weight up, Activation activation, int out);
  struct Heads {
    int q, k, v, heads, kv_heads, head_dim, layer, rope;  // rope -1: none
    bool interleaved;
    std::vector<float> q_norm, k_norm;  // empty: none
    float eps;
    float growth;  // a query at position p is multiplied by 1 + growth * ln(1 + p / period)
    int period;
  };
  void rotate_and_store(Heads heads);
  struct Attention {
    int q, out, heads, kv_heads, head_dim, layer, window;
    float scale, softcap;
  };
  void attention(Attention attention);
  void gather(int x, int out);
  void softcap(int x, float cap);
  void forbid(int x, std::vector<int> ids);  // they become -inf
  void tap(int x, int layer);

  // Check the batch against the store and the buffers, then run; throws std::invalid_argument on a bad batch.
  void run(const Batch& batch, const std::vector<int>& taps, int vocab);
  Buffer& at(int id) { return *buffers_.at(static_cast<size_t>(id)); }
  std::vector<std::pair<int, int>> beyond() const;  // (row of the last run, layer), see `Context::beyond`
  const std::vector<std::pair<int, int>>& taps() const { return taps_; }  // (layer, buffer)
  std::vector<std::pair<std::string, double>> profile() const;
  void set_profiling(bool on) { profiling_ = on; }
  const Kernels& kernels() const { return *context_.kernels; }

 private:
  class Pass;

  void need_quantized(int x);
  void check_store(const KVStore& store) const;
  void prepare(const Batch& batch, const std::vector<int>& taps);
  void plan();
  void push(std::unique_ptr<Op> op, int writes);

  std::shared_ptr<Pool> pool_;
  Context context_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<bool> fresh_;  // the quantised twin holds what the buffer holds, at this point of the recording
  std::vector<RopeTable> ropes_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::pair<int, int>> taps_;
  std::vector<const Op*> heavy_after_;  // per op, the next that reads weights
  std::vector<Phase> phases_;           // of this run, one per op that has tasks
  std::vector<size_t> op_of_;           // per phase
  std::vector<double> seconds_;
  bool profiling_ = false;
  std::mutex turn_;  // one run at a time: buffers and context are the program's
};

}  // namespace paceline
