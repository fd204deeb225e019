// One function, compiled for several x86-64 levels and chosen at load time; elsewhere, plain.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PACELINE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PACELINE_CLONES
#endif
