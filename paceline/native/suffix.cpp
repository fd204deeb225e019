// Guesses from suffix automata: the tree of likeliest continuations of a text, best first.
//
// A candidate after a context is as good as candidates of its kind have proved, its kind being how long the context is
// and what share of its occurrences went on like that (SuffixDecoding 2411.04975; SAM-Decoding 2411.10666). Plain twin:
// draft/lookup/suffix_plain.py.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <queue>
#include <stdexcept>
#include <vector>

#include "automaton.h"

namespace nb = nanobind;

namespace paceline {
namespace {

constexpr int kFan = 8;     // successors looked at, newest first; the most frequent one always is
constexpr int kLevels = 3;  // contexts of different length tried at every node
constexpr int kTail = 64;   // tokens compared to see whether a text is still the one that was read
constexpr int kLengths = 8, kShares = 7;
constexpr int kKinds = 2 * kLengths * kShares;

using Tokens = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rates = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

int length_class(int length) {
  static constexpr int kBounds[] = {2, 3, 4, 5, 7, 10, 16};
  return static_cast<int>(std::upper_bound(std::begin(kBounds), std::end(kBounds), length) - std::begin(kBounds));
}

int share_class(int64_t count, int64_t total) {
  if (total == 1) return 0;
  static constexpr int kPercents[] = {10, 25, 50, 75, 95};
  int share = 1;
  for (int percent : kPercents) share += 100 * count >= percent * total;
  return share;
}

struct Node {
  int32_t token, parent, depth, kind;
  double value, rate;
  std::vector<Automaton::Context> contexts;  // by book
};

struct Candidate {
  double value, rate;
  int32_t order, parent, token, kind;
  bool operator<(const Candidate& other) const {
    return value != other.value ? value < other.value : order > other.order;
  }
};

struct Grower {
  const std::vector<const Automaton*>& books;
  const double* rates;
  int most, depth;
  bool chain;
  std::vector<Node> nodes;
  std::priority_queue<Candidate> heap;
  std::vector<Candidate> found;
  int32_t order = 0;

  void run() {
    expand(0);
    while (!heap.empty() && static_cast<int>(nodes.size()) <= most) {
      const Candidate best = heap.top();
      heap.pop();
      const Node& parent = nodes[static_cast<size_t>(best.parent)];
      Node node{best.token, best.parent, parent.depth + 1, best.kind, best.value, best.rate, parent.contexts};
      for (size_t b = 0; b < books.size(); ++b) node.contexts[b] = books[b]->step(node.contexts[b], best.token);
      nodes.push_back(std::move(node));
      if (chain) heap = {};
      expand(static_cast<int32_t>(nodes.size()) - 1);
    }
  }

  void expand(int32_t index) {
    const Node& node = nodes[static_cast<size_t>(index)];
    if (node.depth >= depth || static_cast<int>(nodes.size()) > most) return;
    found.clear();
    for (size_t b = 0; b < books.size(); ++b) {
      Automaton::Context context = node.contexts[b];
      for (int level = 0; level < kLevels && context.state > 0;) {
        level += successors(*books[b], context, b > 0);
        context.state = books[b]->state(context.state).link;
        if (context.state > 0) context.length = books[b]->state(context.state).length;
      }
    }
    for (Candidate& candidate : found) {
      candidate.value = node.value * candidate.rate;
      candidate.parent = index;
      candidate.order = order++;
      heap.push(candidate);
    }
  }

  // Whether the context was ever followed by anything.
  bool successors(const Automaton& book, Automaton::Context context, bool shared) {
    const Automaton::State& state = book.state(context.state);
    const int total = state.count - (state.last == book.size() - 1);
    if (total <= 0) return false;
    const int base = ((shared ? kLengths : 0) + length_class(context.length)) * kShares;
    int looked = 0;
    bool heavy = false;
    for (int32_t e = state.first_edge; e >= 0 && looked < kFan; e = book.edge(e).next, ++looked) {
      consider(book.edge(e).token, base + share_class(book.state(book.edge(e).target).count, total));
      heavy = heavy || book.edge(e).token == state.heavy;
    }
    if (!heavy) consider(state.heavy, base + share_class(state.heavy_count, total));
    return true;
  }

  void consider(int32_t token, int kind) {
    if (token < 0) return;
    const double rate = rates[kind];
    for (Candidate& known : found)
      if (known.token == token) {
        if (rate > known.rate) known.rate = rate, known.kind = kind;
        return;
      }
    found.push_back({0, rate, 0, 0, token, kind});
  }
};

template <class T, class Fill>
nb::ndarray<nb::numpy, T, nb::ndim<2>> table(size_t rows, size_t columns, Fill fill) {
  T* data = new T[rows * columns];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  for (size_t column = 0; column < columns; ++column) fill(data, column);
  return nb::ndarray<nb::numpy, T, nb::ndim<2>>(data, {rows, columns}, owner);
}

auto grow(const Automaton& own, const std::vector<const Automaton*>& shared, const Rates& rates, int nodes, int depth,
          bool chain) {
  if (rates.shape(0) != kKinds) throw std::invalid_argument("rates must be one for each kind");
  std::vector<const Automaton*> books{&own};
  for (const Automaton* book : shared) {
    if (!book) throw std::invalid_argument("an automaton must be given, got None");
    books.push_back(book);
  }
  Grower grower{books, rates.data(), nodes, depth, chain, {}, {}, {}};
  const auto& text = own.text();
  Node root{text.empty() ? -1 : text.back(), -1, 0, -1, 1.0, 1.0, {own.end()}};
  for (size_t b = 1; b < books.size(); ++b) {
    Automaton::Context context;
    for (size_t i = text.size() - std::min<size_t>(text.size(), kContext); i < text.size(); ++i)
      context = books[b]->step(context, text[i]);
    root.contexts.push_back(context);
  }
  grower.nodes.push_back(std::move(root));
  grower.run();
  const std::vector<Node>& tree = grower.nodes;
  const size_t n = tree.size();
  auto whole = table<int32_t>(3, n, [&](int32_t* data, size_t i) {
    data[i] = tree[i].token, data[n + i] = tree[i].parent, data[2 * n + i] = tree[i].kind;
  });
  auto real = table<float>(2, n, [&](float* data, size_t i) {
    data[i] = static_cast<float>(tree[i].rate), data[n + i] = static_cast<float>(tree[i].value);
  });
  return std::make_pair(whole, real);
}

void extend(Automaton& automaton, const Tokens& tokens, size_t start) {
  for (size_t i = start; i < tokens.shape(0); ++i) automaton.append(tokens.data()[i]);
}

// Read what a text has more than what was read; another text is read anew.
void follow(Automaton& automaton, const Tokens& tokens) {
  const auto& text = automaton.text();
  const size_t count = text.size(), tail = std::min<size_t>(count, kTail);
  if (count > tokens.shape(0) ||
      !std::equal(text.end() - static_cast<std::ptrdiff_t>(tail), text.end(), tokens.data() + count - tail)) {
    automaton.clear();
    return extend(automaton, tokens, 0);
  }
  extend(automaton, tokens, count);
}

int count(const Automaton& automaton, const Tokens& tokens) {
  if (tokens.shape(0) > kContext + 1) throw std::invalid_argument("more tokens than are counted");
  int32_t state = 0;
  for (size_t i = 0; i < tokens.shape(0); ++i)
    if ((state = automaton.target(state, tokens.data()[i])) < 0) return 0;
  return automaton.state(state).count;
}

}  // namespace

void bind_suffix(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Automaton>(m, "Automaton")
      .def(nb::init<>())
      .def("__len__", &Automaton::size)
      .def_prop_ro("nbytes", &Automaton::nbytes)
      .def(
          "extend", [](Automaton& a, const Tokens& tokens) { extend(a, tokens, 0); }, "tokens"_a)
      .def("follow", &follow, "tokens"_a, "read a text's new tokens, or all of them if it is another text")
      .def("count", &count, "tokens"_a, "how often these few tokens occurred")
      .def("grow", &grow, "shared"_a, "rates"_a, "nodes"_a, "depth"_a, "chain"_a,
           "int32 [3, n]: token, parent, kind; float32 [2, n]: rate, value; the root first, then best first");
  m.attr("CONTEXT") = kContext;
}

}  // namespace paceline
