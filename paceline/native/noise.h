// Keyed noise: the words of a block of tokens, and what they add to a score.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "kernels.h"

namespace paceline {

constexpr int kBlock = 64;  // tokens per block of maxima, and per batch of noise

// What a row's noise is keyed by.
struct Key {
  uint64_t seed;
  int64_t position;
};

// A draw takes the best instruction set's noise whatever PACELINE_ISA says: words are whole-number arithmetic, the same
// on every path, which tests/native/test_noise_isas.py shows. An empty name is the best; an unknown one throws.
const Kernels& noise_kernels(const std::string& isa = "");

// The 64 words of a block, each where place() says.
inline void noise(const Kernels& kernels, const Key& key, int block, uint32_t* words, uint32_t stream = 0) {
  kernels.philox(key.seed, stream, static_cast<uint64_t>(key.position), static_cast<uint32_t>(block * (kBlock / 4)),
                 words);
}

// Where a token of a block finds its word.
inline int place(int token) { return token % 4 * 16 + token % kBlock / 4; }

// The words of 16 tokens anywhere, in their order.
inline void noise_of(const Kernels& kernels, const Key& key, const int32_t* tokens, uint32_t* words,
                     uint32_t stream = 0) {
  uint32_t counters[16], all[kBlock];
  for (int i = 0; i < 16; ++i) counters[i] = static_cast<uint32_t>(tokens[i]) / 4;
  kernels.philox_at(key.seed, stream, static_cast<uint64_t>(key.position), counters, all);
  for (int i = 0; i < 16; ++i) words[i] = all[tokens[i] % 4 * 16 + i];
}

inline double gumbel(uint32_t word) { return -std::log(-std::log((static_cast<double>(word) + 0.5) * 0x1p-32)); }

}  // namespace paceline
