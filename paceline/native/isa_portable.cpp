// The kernels compiled for any processor.
#include "simd_portable.h"
#define PACELINE_ISA portable
#include "kernels.inc"
