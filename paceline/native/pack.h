// Turns rows of a model file into packed tiles.
#pragma once

#include <cstdint>
#include <string>

#include "pool.h"
#include "weight.h"

namespace paceline {

// kind: "auto" keeps the file's precision (exactly, but for Q5_K whose scales are rounded to f16 and Q2_K which is
// fitted); "q4", "q6", "q8", "f16", "bf16", "f32" convert, and leave a source of just those bits as it is.
// Throws std::invalid_argument when bytes, type and shape do not fit.
Weight pack(const uint8_t* src, size_t bytes, int ggml_type, int64_t rows, int64_t cols, const std::string& kind,
            Pool& pool);

}  // namespace paceline
