// A packed weight matrix that owns its bytes, and the table that turns token ids into embeddings.
#pragma once

#include <memory>
#include <stdexcept>

#include "layout.h"
#include "memory.h"

namespace paceline {

const char* kind_name(Kind kind);

// A handle: copies share the bytes, which never change once packed.
class Weight {
 public:
  // Zeroed, so that every weight is zero until packed and padding rows stay so.
  Weight(Kind kind, int rows, int cols)
      : kind_(kind),
        rows_(rows),
        cols_(cols),
        stride_(tile_bytes(kind, cols)),
        memory_(std::make_shared<Memory>(static_cast<size_t>(tiles()) * stride_)) {}

  Kind kind() const { return kind_; }
  int rows() const { return rows_; }
  int cols() const { return cols_; }
  int tiles() const { return (rows_ - 1) / kTile + 1; }
  size_t nbytes() const { return memory_->size(); }
  const uint8_t* data() const { return memory_->data(); }
  uint8_t* tile(int index) { return memory_->data() + static_cast<size_t>(index) * stride_; }
  WeightView view() const { return {kind_, rows_, cols_, memory_->data(), stride_}; }

  // dst: f32 [cols].
  void unpack_row(int row, float* dst) const;

  // The first rows, at the same bytes.
  Weight first(int rows) const {
    if (rows < 1 || rows > rows_) throw std::invalid_argument("a weight has no such number of rows");
    Weight part(*this);
    part.rows_ = rows;
    return part;
  }

  // Overwrite a row by one of a matrix of the same kind and width; for heads that follow the text.
  void copy_row(int row, const Weight& from, int source);

 private:
  Kind kind_;
  int rows_, cols_;
  size_t stride_;
  std::shared_ptr<Memory> memory_;
};

// Rows as the file has them, or those of a packed weight when input and output embeddings are tied.
class EmbedTable {
 public:
  // src: rows * row_bytes(ggml_type, cols) bytes, copied.
  EmbedTable(const uint8_t* src, int ggml_type, int rows, int cols);
  explicit EmbedTable(const Weight& weight);

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  size_t nbytes() const { return weight_ ? weight_->nbytes() : raw_.size(); }

  // dst: f32 [cols]; 0 <= id < rows.
  void row(int id, float* dst) const;

 private:
  int type_ = 0;
  int rows_, cols_;
  size_t row_bytes_ = 0;
  Memory raw_;
  std::unique_ptr<Weight> weight_;
};

}  // namespace paceline
