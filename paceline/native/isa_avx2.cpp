// The kernels compiled for AVX2 with FMA and F16C.
#if defined(__x86_64__)
#include "simd_avx2.h"
#define PACELINE_ISA avx2
#define PACELINE_PRODUCTS "products_avx2.inc"
#include "kernels.inc"
#endif
