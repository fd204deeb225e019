// Keyed noise: the words of a block of tokens, and what they add to a score.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels.h"

namespace paceline {

constexpr int kBatch = 32;          // counters per batch of noise
constexpr int kWords = 4 * kBatch;  // which have the words of four tokens each

// What a row's noise is keyed by.
struct Key {
  uint64_t seed;
  int64_t position;
};

// A draw takes the best instruction set's noise whatever PACELINE_ISA says: words are whole-number arithmetic, the same
// on every path, which tests/native/test_noise_isas.py shows. An empty name is the best; an unknown one throws.
const Kernels& noise_kernels(const std::string& isa = "");

// The counter that has a token's word, and which of its four words that is.
inline uint32_t counter(int token) { return static_cast<uint32_t>(token) / 4; }
inline int lane(int token) { return token % 4; }

// The words of a batch of counters: that of counter i and a lane at [kBatch lane + i].
inline void noise(const Kernels& kernels, const Key& key, const uint32_t* counters, uint32_t* words,
                  uint32_t stream = 0) {
  kernels.philox(key.seed, stream, static_cast<uint64_t>(key.position), counters, words);
}

inline double gumbel(uint32_t word) { return -std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

}  // namespace paceline
