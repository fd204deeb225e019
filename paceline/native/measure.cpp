// What this machine can do at best, for the floors a benchmark divides by: bytes read and int8 products per second.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "memory.h"
#include "pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PACELINE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PACELINE_CLONES
#endif

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr size_t kPart = size_t{1} << 18;  // bytes handed to a thread at a time; two threads meet at the end only
constexpr size_t kProbeAhead = 4096;       // bytes between the prefetch and the load

// Sum a part with 64-byte loads in four chains, so that neither the additions nor their latency limit it.
PACELINE_CLONES uint64_t sum(const uint8_t* data, size_t bytes) {
  typedef uint64_t Line __attribute__((vector_size(64)));
  Line sums[4] = {};
  for (size_t at = 0; at + 256 <= bytes; at += 256) {
    const Line* lines = reinterpret_cast<const Line*>(data + at);
    for (int i = 0; i < 4; ++i) {
      __builtin_prefetch(data + at + kProbeAhead + 64 * i, 0, 2);  // into the second level, as the kernels do
      sums[i] += lines[i];
    }
  }
  const Line all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  uint64_t total = 0;
  for (int i = 0; i < 8; ++i) total += all[i];
  return total;
}

// A buffer as large as what shall be compared with it, laid out like packed weights.
class ReadProbe {
 public:
  ReadProbe(std::shared_ptr<Pool> pool, size_t bytes)
      : pool_(std::move(pool)), memory_(std::max(bytes / kPart, size_t{1}) * kPart) {
    each_part([](uint8_t* part) { std::memset(part, 1, kPart); });
  }

  size_t nbytes() const { return memory_.size(); }

  // Read everything once; returns seconds.
  double read() {
    const Clock::time_point start = Clock::now();
    each_part([this](uint8_t* part) { seen_.fetch_add(sum(part, kPart), std::memory_order_relaxed); });
    return since(start);
  }

 private:
  template <class Run>
  void each_part(Run&& run) {
    const int parts = static_cast<int>(memory_.size() / kPart);
    pool_->share(parts, 1, [&](int begin, int end) {
      for (int part = begin; part < end; ++part) run(memory_.data() + static_cast<size_t>(part) * kPart);
    });
  }

  std::shared_ptr<Pool> pool_;
  Memory memory_;
  std::atomic<uint64_t> seen_{0};  // keeps the compiler from leaving the reads out
};

// Products per call of a dot loop that never leaves its registers: the instruction the packed kernels are made of.
constexpr int kSteps = 1 << 16, kChains = 12;

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,avx512vnni"))) int64_t dots_avx512() {
  __m512i sums[kChains], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int step = 0; step < kSteps; ++step) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    asm volatile("" : "+v"(a));
  }
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  alignas(64) int32_t lanes[16];
  _mm512_store_si512(lanes, sums[0]);
  return lanes[0] ? int64_t{kSteps} * kChains * 64 : 0;
}

// As for codes of four bits: eight times two products are added as 16 bits, then widened.
__attribute__((target("avx2"))) int64_t dots_avx2() {
  constexpr int kWords = 8;
  __m256i sums[kWords], a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  __m256i total = _mm256_setzero_si256();
  const __m256i ones = _mm256_set1_epi16(1);
  for (int step = 0; step < kSteps / 8; ++step) {
    for (__m256i& sum : sums) sum = _mm256_setzero_si256();
    for (int i = 0; i < 8; ++i)
      for (__m256i& sum : sums) {
        asm volatile("" : "+x"(a));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b));
      }
    for (__m256i& sum : sums) total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, ones));
  }
  return _mm256_extract_epi32(total, 0) ? int64_t{kSteps} * kWords * 32 : 0;
}
#endif

// int8 products per second of all threads together; 0 where no such loop is written for the processor.
double dot_rate(Pool& pool, double seconds) {
  int64_t (*dots)() = nullptr;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) dots = dots_avx512;
  else if (__builtin_cpu_supports("avx2")) dots = dots_avx2;
#endif
  if (!dots) return 0;
  std::atomic<int64_t> done{0};
  const Clock::time_point start = Clock::now();
  pool.share(pool.threads(), 1, [&](int, int) {  // a run that another thread takes over comes too late to count
    while (since(start) < seconds) done.fetch_add(dots(), std::memory_order_relaxed);
  });
  return static_cast<double>(done.load()) / since(start);
}

}  // namespace

void bind_measure(nb::module_& m) {
  nb::class_<ReadProbe>(m, "ReadProbe")
      .def(nb::init<std::shared_ptr<Pool>, size_t>(), "pool"_a, "bytes"_a)
      .def_prop_ro("nbytes", &ReadProbe::nbytes)
      .def("read", &ReadProbe::read, nb::call_guard<nb::gil_scoped_release>());
  m.def("dot_rate", &dot_rate, "pool"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace paceline
