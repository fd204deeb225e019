// The kernels compiled for AVX-512 with VNNI.
#if defined(__x86_64__)
#include "simd_avx512.h"
#define PACELINE_ISA avx512
#include "kernels.inc"
#endif
