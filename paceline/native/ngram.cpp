// Where each n-gram of a text was last followed by something: one hash table for each n.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace paceline {
namespace {

constexpr int kTail = 20;  // tokens compared to see whether a text is still the one that was read

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class NgramIndex {
 public:
  explicit NgramIndex(int longest) : tables_(static_cast<size_t>(longest)) {
    if (longest < 1 || longest > 64) throw std::invalid_argument("n must be from 1 to 64");
  }

  size_t size() const { return text_.size(); }

  // Read what a text has more than what was read; another text is read anew.
  void follow(const Tokens& tokens) {
    const size_t tail = std::min<size_t>(size(), kTail);
    if (size() > tokens.shape(0) ||
        !std::equal(text_.end() - static_cast<std::ptrdiff_t>(tail), text_.end(), tokens.data() + size() - tail)) {
      text_.clear();
      for (Table& table : tables_) table = {};
    }
    if (tokens.shape(0) >= size_t{1} << 31) throw std::length_error("a text of 2^31 tokens");
    text_.reserve(tokens.shape(0));
    while (size() < tokens.shape(0)) append(tokens.data()[size()]);
  }

  // (match length, position of what followed), the longest match first, then the latest; (0, 0) if there is none.
  std::pair<int, int> find() const {
    for (size_t n = std::min(tables_.size(), size()); n > 0; --n) {
      const Table& table = tables_[n - 1];
      if (table.slots.empty()) continue;
      if (const int32_t position = table.slots[place(table, n, size())]) return {static_cast<int>(n), position};
    }
    return {0, 0};
  }

  // `count` tokens from a position on; where the text ends it repeats with the period that gave.
  std::vector<int32_t> copy(int position, int count) const {
    if (position < 0 || static_cast<size_t>(position) >= size() || count < 0)
      throw std::invalid_argument("no such place in the text");
    const size_t from = static_cast<size_t>(position), period = size() - from;
    std::vector<int32_t> out(static_cast<size_t>(count));
    for (size_t i = 0; i < out.size(); ++i) out[i] = text_[from + i % period];
    return out;
  }

 private:
  struct Table {
    std::vector<int32_t> slots;  // the position behind the n-gram, 0 is free
    size_t used = 0;
  };

  // An n-gram is entered when its successor is known, so the text's own end never matches itself.
  void append(int32_t token) {
    const size_t end = size();
    for (size_t n = 1; n <= std::min(tables_.size(), end); ++n) {
      Table& table = tables_[n - 1];
      if (2 * table.used >= table.slots.size()) grow(table, n);
      int32_t& slot = table.slots[place(table, n, end)];
      table.used += slot == 0;
      slot = static_cast<int32_t>(end);
    }
    text_.push_back(token);
  }

  void grow(Table& table, size_t n) {
    std::vector<int32_t> old(std::max<size_t>(64, 2 * table.slots.size()));
    old.swap(table.slots);
    for (const int32_t position : old)
      if (position) table.slots[place(table, n, static_cast<size_t>(position))] = position;
  }

  // The slot of the n tokens before `end`, or the free one where they belong.
  size_t place(const Table& table, size_t n, size_t end) const {
    const auto gram = text_.begin() + static_cast<std::ptrdiff_t>(end - n);
    uint64_t hash = 0;
    for (size_t i = 0; i < n; ++i) hash = (hash ^ static_cast<uint32_t>(gram[static_cast<std::ptrdiff_t>(i)])) * kPrime;
    const size_t mask = table.slots.size() - 1;
    size_t slot = (hash ^ hash >> 32) & mask;
    while (table.slots[slot] &&
           !std::equal(gram, gram + static_cast<std::ptrdiff_t>(n),
                       text_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(table.slots[slot]) - n)))
      slot = (slot + 1) & mask;
    return slot;
  }

  static constexpr uint64_t kPrime = 0x9e3779b97f4a7c15u;
  std::vector<int32_t> text_;
  std::vector<Table> tables_;
};

}  // namespace

void bind_ngram(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NgramIndex>(m, "NgramIndex")
      .def(nb::init<int>(), "longest"_a)
      .def("__len__", &NgramIndex::size)
      .def("follow", &NgramIndex::follow, "tokens"_a, "read a text's new tokens, or all of them if it is another text")
      .def("find", &NgramIndex::find, "(match length, position of what followed), or (0, 0)")
      .def(
          "copy",
          [](const NgramIndex& index, int position, int count) {
            nb::typed<nb::list, int> out;
            for (const int32_t token : index.copy(position, count)) out.append(token);
            return out;
          },
          "position"_a, "count"_a);
}

}  // namespace paceline
