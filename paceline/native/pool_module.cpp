// The Python face of the pool and its governor: what a measurement asks, and what tests turn.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
namespace {

using Call = std::function<void(int, int, int, int)>;

class Called final : public Work {
 public:
  explicit Called(const Call& call) : call_(call) {}
  void run(int phase, int begin, int end, int thread) override { call_(phase, begin, end, thread); }

 private:
  const Call& call_;
};

void run(Pool& pool, const std::vector<std::pair<int, int>>& list, const Call& call) {
  std::vector<Phase> phases;
  for (const auto& [tasks, grain] : list) {
    if (tasks < 1 || grain < 1) throw std::invalid_argument("a phase needs tasks, and a grain of at least one");
    phases.push_back({tasks, grain});
  }
  Called work(call);
  const nb::gil_scoped_release release;
  pool.run(work, phases, 0);
}

}  // namespace

void bind_pool(nb::module_& m) {
  nb::class_<Pool>(m, "Pool")
      .def(nb::init<int>(), "threads"_a)
      .def_prop_ro("threads", &Pool::threads, "the most that are used")
      .def_prop_ro("active", &Pool::active, "how many the latest job used")
      .def(
          "contention",
          [](Pool& pool) {
            const Contention seen = pool.contention();
            return std::pair(seen.wall, seen.lost);
          },
          "(wall, lost): thread seconds within jobs since the last call, and of these, ready to run but off core")
      .def("hold", &Pool::hold, "threads"_a, "use this many; 0 as many as pay")
      .def("jitter", &Pool::jitter, "microseconds"_a, "delay threads at random where order matters; for tests")
      .def("run", &run, "phases"_a, "run"_a, "phases of (tasks, grain), run(phase, begin, end, thread); for tests");
  nb::class_<Governor>(m, "Governor")
      .def(nb::init<int>(), "most"_a)
      .def_prop_ro("threads", &Governor::threads)
      .def("saw", &Governor::saw, "kind"_a, "threads"_a, "seconds"_a, "lost"_a, "now"_a);
}

}  // namespace paceline
