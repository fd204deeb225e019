// Keys and values in pages of 32 tokens, f16. The Python PagedCache says which sequence owns which page.
//
// One run of memory, [page][layer][keys, values], so that what is touched grows with the text and a page is copied
// whole: keys   [kv_head][head_dim][32]   a block's keys side by side, so that scores need no horizontal sums values
// [kv_head][32][head_dim]
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "memory.h"

namespace paceline {

class KVStore {
 public:
  KVStore(int layers, int kv_heads, int head_dim, int pages)
      : layers_(layers),
        kv_heads_(kv_heads),
        head_dim_(head_dim),
        pages_(pages),
        memory_(static_cast<size_t>(pages) * page_values() * sizeof(uint16_t)) {}

  KVStore(const KVStore&) = delete;
  KVStore& operator=(const KVStore&) = delete;

  int layers() const { return layers_; }
  int kv_heads() const { return kv_heads_; }
  int head_dim() const { return head_dim_; }
  int pages() const { return pages_; }
  size_t nbytes() const { return memory_.size(); }

  uint16_t* keys(int layer, int page, int head) const { return at(page, layer, 0, head); }
  uint16_t* values(int layer, int page, int head) const { return at(page, layer, 1, head); }

  // Copy one token's keys and values to another slot; a slot is page * 32 + offset.
  void copy_token(int64_t from, int64_t to) {
    for (int layer = 0; layer < layers_; ++layer)
      for (int head = 0; head < kv_heads_; ++head) {
        const uint16_t* k = keys(layer, static_cast<int>(from / kPage), head) + from % kPage;
        uint16_t* k_to = keys(layer, static_cast<int>(to / kPage), head) + to % kPage;
        for (int i = 0; i < head_dim_; ++i) k_to[i * kPage] = k[i * kPage];
        std::memcpy(values(layer, static_cast<int>(to / kPage), head) + (to % kPage) * head_dim_,
                    values(layer, static_cast<int>(from / kPage), head) + (from % kPage) * head_dim_,
                    static_cast<size_t>(head_dim_) * 2);
      }
  }
  void copy_page(int from, int to) { std::memcpy(keys(0, to, 0), keys(0, from, 0), page_values() * sizeof(uint16_t)); }

 private:
  size_t layer_values() const { return static_cast<size_t>(kv_heads_) * head_dim_ * kPage; }
  size_t page_values() const { return static_cast<size_t>(layers_) * 2 * layer_values(); }
  uint16_t* at(int page, int layer, int part, int head) const {
    return memory_.as<uint16_t>() + static_cast<size_t>(page) * page_values() +
           (static_cast<size_t>(layer) * 2 + part) * layer_values() + static_cast<size_t>(head) * head_dim_ * kPage;
  }
  int layers_, kv_heads_, head_dim_, pages_;
  Memory memory_;
};

}  // namespace paceline
