// Finds codes for floats: a group of 32 inputs of 16 rows at once, rows in the vector lanes so that nothing is summed
// across lanes. Knows neither file formats nor tiles.
#pragma once

#include <cstdint>
#include <cstring>

#include "formats.h"

namespace paceline {

// Four rows: the vector every target has. Written with the compilers' generic vectors, not intrinsics.
typedef float Lanes __attribute__((vector_size(16)));

static inline Lanes lanes(float x) { return Lanes{x, x, x, x}; }
static inline Lanes load_lanes(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
static inline Lanes least(Lanes a, Lanes b) { return a < b ? a : b; }  // b when a is NaN
static inline Lanes greatest(Lanes a, Lanes b) { return a > b ? a : b; }
static inline Lanes nearest(Lanes x) { return (x + 12582912.0f) - 12582912.0f; }  // |x| < 2^22
static inline Lanes inverse(Lanes x) {
  const Lanes zero = lanes(0), one = lanes(1);
  return x > zero ? one / x : zero;
}
static inline Lanes as_half(Lanes x) {  // what an f16 keeps of it, saturated
  x = greatest(least(x, lanes(65504)), lanes(-65504));
  Lanes y;
  for (int i = 0; i < 4; ++i) y[i] = half_to_float(float_to_half(x[i]));
  return y;
}

// w ~ scale*u + min, 0 <= u <= top: least squares weighted by rms + |w| (large weights matter more), over a few clipped
// ranges, each refitted in closed form, then once more from the best. Its error is within 5 % of what an exhaustive
// search of ranges finds, 15 % below one range refitted.
// w: f32 [32, 16]; codes: u8 [32, 16]; scale, min: f32 [16], already rounded to f16.
static inline void requantize_affine(const float* w, int top, uint8_t* codes, float* scale, float* min) {
  // Parts of the range given up at the bottom and at the top, all pairs; with more levels there is less to gain.
  static constexpr float kCuts[3] = {0, 0.04f, 0.08f};
  const int cuts = top > 15 ? 2 : 3;
  const Lanes limit = lanes(static_cast<float>(top)), zero = lanes(0), tiny = lanes(1e-30f);
  for (int at = 0; at < 16; at += 4) {
    Lanes x[32], weight[32], low = load_lanes(w + at), high = low, square = zero, mass = zero, mean = zero;
    for (int i = 0; i < 32; ++i) {
      x[i] = load_lanes(w + 16 * i + at);
      low = least(x[i], low);
      high = greatest(x[i], high);
      square += x[i] * x[i];
    }
    Lanes rms;
    for (int i = 0; i < 4; ++i) rms[i] = __builtin_sqrtf(square[i] / 32.0f);
    for (int i = 0; i < 32; ++i) {
      weight[i] = rms + greatest(x[i], -x[i]) + tiny;
      mass += weight[i];
      mean += weight[i] * x[i];
    }
    mean /= mass;
    for (int i = 0; i < 32; ++i) x[i] -= mean;
    low -= mean;
    high -= mean;

    // Fit to the codes nearest under (step, offset): keeps the better of that and the best so far.
    Lanes best = lanes(-1), step = zero, offset = low;
    const auto refit = [&](Lanes by, Lanes from) {
      const Lanes inv = inverse(by), shift = -from * inv;
      Lanes u1 = zero, u2 = zero, ux = zero;
      for (int i = 0; i < 32; ++i) {
        const Lanes u = nearest(greatest(least(x[i] * inv + shift, limit), zero)), v = weight[i] * u;
        u1 += v;
        u2 += v * u;
        ux += v * x[i];
      }
      const Lanes mid = u1 / mass, var = u2 - u1 * mid;
      const Lanes slope = ux * inverse(var), gain = slope * ux;
      const auto better = gain > best;
      best = better ? gain : best;
      step = better ? slope : step;
      offset = better ? -slope * mid : offset;
    };
    const Lanes range = high - low;
    for (int c = 0; c < cuts * cuts; ++c) {
      const Lanes from = low + range * kCuts[c / cuts];
      refit((high - range * kCuts[c % cuts] - from) / limit, from);
    }
    refit(step, offset);

    const Lanes s = as_half(step), m = as_half(offset + mean), inv = inverse(s), shift = (mean - m) * inv;
    for (int i = 0; i < 32; ++i) {
      const Lanes u = nearest(greatest(least(x[i] * inv + shift, limit), zero));
      for (int j = 0; j < 4; ++j) codes[16 * i + at + j] = static_cast<uint8_t>(u[j]);
    }
    std::memcpy(scale + at, &s, sizeof s);
    std::memcpy(min + at, &m, sizeof m);
  }
}

// w ~ scale*u, -8 <= u <= 7, scale of either sign: weighted least squares as above, over ranges that put the largest
// weight at one end or the other, then once more from the best.
// w: f32 [32, 16]; scale: f32 [16].
static inline void fit_centred(const float* w, float* scale) {
  static constexpr float kEnds[] = {-9, -8.5f, -8, -7.5f, -7, 6.5f, 7, 7.5f, 8};
  const Lanes zero = lanes(0), tiny = lanes(1e-30f), bottom = lanes(-8), top = lanes(7);
  for (int at = 0; at < 16; at += 4) {
    Lanes x[32], weight[32], peak = zero, square = zero;
    for (int i = 0; i < 32; ++i) {
      x[i] = load_lanes(w + 16 * i + at);
      peak = greatest(x[i], -x[i]) > greatest(peak, -peak) ? x[i] : peak;
      square += x[i] * x[i];
    }
    Lanes rms;
    for (int i = 0; i < 4; ++i) rms[i] = __builtin_sqrtf(square[i] / 32.0f);
    for (int i = 0; i < 32; ++i) weight[i] = rms + greatest(x[i], -x[i]) + tiny;
    Lanes best = lanes(-1), step = zero;
    const auto refit = [&](Lanes inv) {
      Lanes uu = zero, ux = zero;
      for (int i = 0; i < 32; ++i) {
        const Lanes u = nearest(greatest(least(x[i] * inv, top), bottom)), v = weight[i] * u;
        uu += v * u;
        ux += v * x[i];
      }
      const Lanes slope = ux * inverse(uu), gain = slope * ux;
      const auto better = gain > best;
      best = better ? gain : best;
      step = better ? slope : step;
    };
    const Lanes to_one = peak < zero ? -inverse(-peak) : inverse(peak);
    for (const float end : kEnds) refit(lanes(end) * to_one);
    refit(step < zero ? -inverse(-step) : inverse(step));
    const Lanes most = lanes(65504), s = greatest(least(step, most), -most);
    std::memcpy(scale + at, &s, sizeof s);
  }
}

// The codes u + 8 nearest to w ~ scale*u: u8 [32, 16].
static inline void codes_centred(const float* w, const float* scale, uint8_t* codes) {
  for (int at = 0; at < 16; at += 4) {
    const Lanes s = load_lanes(scale + at), inv = s < lanes(0) ? -inverse(-s) : inverse(s);
    for (int i = 0; i < 32; ++i) {
      const Lanes x = load_lanes(w + 16 * i + at) * inv;
      const Lanes u = nearest(greatest(least(x, lanes(7)), lanes(-8))) + 8.0f;
      for (int j = 0; j < 4; ++j) codes[16 * i + at + j] = static_cast<uint8_t>(u[j]);
    }
  }
}

// w ~ scale*(u - 128), 1 <= u <= 255.
static inline void requantize_symmetric(const float* w, uint8_t* codes, float* scale) {
  const Lanes limit = lanes(127);
  for (int at = 0; at < 16; at += 4) {
    Lanes peak = lanes(0);
    for (int i = 0; i < 32; ++i) {
      const Lanes x = load_lanes(w + 16 * i + at);
      peak = greatest(greatest(x, -x), peak);
    }
    const Lanes s = as_half(peak / limit), inv = inverse(s);
    for (int i = 0; i < 32; ++i) {
      const Lanes u = nearest(greatest(least(load_lanes(w + 16 * i + at) * inv, limit), -limit)) + 128.0f;
      for (int j = 0; j < 4; ++j) codes[16 * i + at + j] = static_cast<uint8_t>(u[j]);
    }
    std::memcpy(scale + at, &s, sizeof s);
  }
}

}  // namespace paceline
