#include "dispatch.h"

namespace paceline {
namespace {

bool is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace

const size_t kAhead = is_amd() ? 6144 : 4096;
const size_t kAheadW6K = is_amd() ? 6144 : 2048;

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("bmi2"))
    found.push_back(&avx512::table);
  if (has_avx2) found.push_back(&avx2::table);
#endif
  found.push_back(&portable::table);
  return found;
}

}  // namespace paceline
