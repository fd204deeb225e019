// The Python face of the native code; thin, because everything else is tested through it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>

#include "dispatch.h"
#include "program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace paceline {
void bind_pool(nb::module_& m);
void bind_weight(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_measure(nb::module_& m);
void bind_ngram(nb::module_& m);
void bind_suffix(nb::module_& m);
void bind_top(nb::module_& m);
void bind_draft(nb::module_& m);
}  // namespace paceline

namespace {

using namespace paceline;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Slots = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using View = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;
using Peaks = nb::ndarray<nb::numpy, int32_t, nb::ndim<2>, nb::c_contig>;

const Kernels* kernels_named(const std::string& isa) {
  std::string names;
  for (const Kernels* kernels : available_kernels()) {
    if (isa.empty() || isa == kernels->name) return kernels;
    names += names.empty() ? kernels->name : std::string(", ") + kernels->name;
  }
  throw std::invalid_argument("instruction set `" + isa + "` is not available here; available: " + names);
}

void run(Program& program, KVStore& store, const Ints& tokens, const Ints& positions, const Ints& parents,
         const Ints& starts, const Ints& wanted, const Table& tables, const Ints& lengths, const std::vector<int>& taps,
         int vocab) {
  Batch batch;
  batch.sequences = static_cast<int>(lengths.shape(0));
  batch.flat = static_cast<int>(tokens.shape(0));
  batch.wanted = static_cast<int>(wanted.shape(0));
  batch.pages_per_sequence = static_cast<int>(tables.shape(1));
  if (positions.shape(0) != tokens.shape(0) || parents.shape(0) != tokens.shape(0) ||
      starts.shape(0) != lengths.shape(0) + 1 || tables.shape(0) != lengths.shape(0) || batch.sequences == 0)
    throw std::invalid_argument("batch arrays disagree in length");
  batch.tokens = tokens.data();
  batch.positions = positions.data();
  batch.parents = parents.data();
  batch.starts = starts.data();
  batch.wanted_rows = wanted.data();
  batch.tables = tables.data();
  batch.lengths = lengths.data();
  batch.store = &store;
  nb::gil_scoped_release release;
  program.run(batch, taps, vocab);
}

void bind_program(nb::module_& m) {
  nb::class_<Program>(m, "Program")
      .def(
          "__init__",
          [](Program* self, std::shared_ptr<Pool> pool, const std::string& isa) {
            new (self) Program(std::move(pool), kernels_named(isa));
          },
          "pool"_a, "isa"_a = "")
      .def_prop_ro("isa", [](const Program& p) { return std::string(p.kernels().name); })
      .def(
          "buffer",
          [](Program& p, int width, bool wanted) { return p.buffer(width, wanted ? Rows::Wanted : Rows::Flat); },
          "width"_a, "wanted"_a = false)
      .def("rope", &Program::rope, "inverse_frequencies"_a, "multiplier"_a)
      .def("embed", &Program::embed, "table"_a, "scale"_a, "out"_a)
      .def("rms_norm", &Program::rms_norm, "x"_a, "weight"_a, "eps"_a, "out"_a, "accumulate"_a = false)
      .def(
          "linear",
          [](Program& p, int x, const std::vector<std::tuple<Weight, std::vector<float>, int>>& parts,
             bool accumulate) {
            std::vector<Program::Part> list;
            for (const auto& [weight, bias, out] : parts) list.push_back({weight, bias, out});
            p.linear(x, std::move(list), accumulate);
          },
          "x"_a, "parts"_a, "accumulate"_a = false)
      .def(
          "gated",
          [](Program& p, int x, Weight gate, Weight up, bool gelu, int out) {
            p.gated(x, std::move(gate), std::move(up), gelu ? Activation::GeluTanh : Activation::Silu, out);
          },
          "x"_a, "gate"_a, "up"_a, "gelu"_a, "out"_a)
      .def(
          "rotate_and_store",
          [](Program& p, int q, int k, int v, int heads, int kv_heads, int head_dim, int layer, int rope,
             bool interleaved, std::vector<float> q_norm, std::vector<float> k_norm, float eps, float growth,
             int period) {
            p.rotate_and_store({q, k, v, heads, kv_heads, head_dim, layer, rope, interleaved, std::move(q_norm),
                                std::move(k_norm), eps, growth, period});
          },
          "q"_a, "k"_a, "v"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "layer"_a, "rope"_a, "interleaved"_a, "q_norm"_a,
          "k_norm"_a, "eps"_a, "growth"_a = 0.0f, "period"_a = 1)
      .def(
          "attention",
          [](Program& p, int q, int out, int heads, int kv_heads, int head_dim, int layer, int window, float scale,
             float softcap) { p.attention({q, out, heads, kv_heads, head_dim, layer, window, scale, softcap}); },
          "q"_a, "out"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "layer"_a, "window"_a, "scale"_a, "softcap"_a)
      .def("keep_peaks", &Program::keep_peaks, "x"_a)
      .def("gather", &Program::gather, "x"_a, "out"_a)
      .def("softcap", &Program::softcap, "x"_a, "cap"_a)
      .def("forbid", &Program::forbid, "x"_a, "ids"_a)
      .def("tap", &Program::tap, "x"_a, "layer"_a)
      .def("run", &run, "store"_a, "tokens"_a, "positions"_a, "parents"_a, "starts"_a, "wanted"_a, "tables"_a,
           "lengths"_a, "taps"_a, "vocab"_a)
      .def(
          "rows",
          [](nb::handle self, int id, int count) {
            Buffer& buffer = nb::cast<Program&>(self).at(id);
            if (count > buffer.capacity) throw std::invalid_argument("more rows asked for than the last run made");
            return View(buffer.row(0), {static_cast<size_t>(count), static_cast<size_t>(buffer.width)}, self);
          },
          "id"_a, "count"_a, "f32 [count, width], valid until the next run")
      .def(
          "peaks",
          [](nb::handle self, int id, int count) -> std::optional<Peaks> {
            Buffer& buffer = nb::cast<Program&>(self).at(id);
            if (!buffer.has_peaks) return std::nullopt;
            if (count > buffer.capacity) throw std::invalid_argument("more rows asked for than the last run made");
            const size_t blocks = static_cast<size_t>(blocks_of(buffer.width));
            return Peaks(buffer.peaks_of(0), {static_cast<size_t>(count), blocks}, self);
          },
          "id"_a, "count"_a, "i32 [count, blocks] or None, valid until the next run")
      .def("taps", &Program::taps)
      .def("beyond", &Program::beyond, "(row of the last run, layer) of keys or values that sixteen bits cannot hold")
      .def("profile", &Program::profile)
      .def("set_profiling", &Program::set_profiling);
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a thread that ends with the process keeps what it had, which is no leak
  nb::class_<KVStore>(m, "KVStore")
      .def(nb::init<int, int, int, int>(), "layers"_a, "kv_heads"_a, "head_dim"_a, "pages"_a)
      .def_prop_ro("pages", &KVStore::pages)
      .def_prop_ro("nbytes", &KVStore::nbytes)
      .def("copy_tokens",
           [](KVStore& store, const Slots& from, const Slots& to) {
             if (from.shape(0) != to.shape(0)) throw std::invalid_argument("slot lists differ in length");
             const int64_t end = static_cast<int64_t>(store.pages()) * kPage;
             for (size_t i = 0; i < from.shape(0); ++i) {
               if (from(i) < 0 || to(i) < 0 || from(i) >= end || to(i) >= end)
                 throw std::invalid_argument("slot outside the cache");
               store.copy_token(from(i), to(i));
             }
           })
      .def("copy_page",
           [](KVStore& store, int from, int to) {
             if (from < 0 || to < 0 || from >= store.pages() || to >= store.pages())
               throw std::invalid_argument("page outside the cache");
             store.copy_page(from, to);
           })
      .def(
          "token",
          [](KVStore& store, int layer, int64_t slot) {
            if (layer < 0 || layer >= store.layers() || slot < 0 || slot >= static_cast<int64_t>(store.pages()) * kPage)
              throw std::invalid_argument("layer or slot outside the cache");
            std::vector<int> bits;
            for (int head = 0; head < store.kv_heads(); ++head)
              for (int k = 0; k < store.head_dim(); ++k) {
                const int page = static_cast<int>(slot / kPage), offset = static_cast<int>(slot % kPage);
                bits.push_back(store.keys(layer, page, head)[k * kPage + offset]);
                bits.push_back(store.values(layer, page, head)[offset * store.head_dim() + k]);
              }
            return bits;
          },
          "layer"_a, "slot"_a, "f16 bits of one token's keys and values, interleaved; for tests");
  m.attr("PAGE") = kPage;
  m.def("isas", [] {
    std::vector<std::string> names;
    for (const Kernels* kernels : available_kernels()) names.emplace_back(kernels->name);
    return names;
  });
  bind_pool(m);
  bind_weight(m);
  bind_sampling(m);
  bind_measure(m);
  bind_ngram(m);
  bind_suffix(m);
  bind_top(m);
  bind_program(m);
  bind_draft(m);
}
