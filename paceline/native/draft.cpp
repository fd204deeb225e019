// Drafting whole chains in one call: forward, draw, feed back, until a sequence's next guess no longer pays.
//
// Replays a recorded forward pass; knows tokens, slots and prices, never what became of a guess. draft/model/chain.py
// holds the same loop step by step, which this one equals to the bit.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "clones.h"
#include "draw.h"
#include "program.h"
#include "sampling.h"

namespace nb = nanobind;

namespace paceline {
namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Reals = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rates = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// What one sequence wants: how its tokens are drawn, at most how many, and what they cost in tokens (empty: nothing).
using Wish = std::tuple<double, int, double, double, uint64_t, int64_t, int, std::vector<double>, double>;
// What it got: guesses, how likely each was, the runners-up of each, and how many steps were taken.
using Got = std::tuple<std::vector<int>, std::vector<double>, std::vector<std::vector<int>>, int>;

// Measured acceptance, and what follows from it: draft/model/chain.py's `Rates` says what each table is.
struct Rules {
  Reals edges;
  Rates kept, ahead, beside;

  size_t bin(double confidence) const {
    return static_cast<size_t>(std::upper_bound(edges.data(), edges.data() + edges.shape(0), confidence) -
                               edges.data());
  }
  size_t row(int depth) const { return std::min(static_cast<size_t>(depth), kept.shape(0) - 1); }

  bool pays(int count, double survival, size_t bin, const std::vector<double>& price, double step, int limit) const {
    double gain = 0;
    for (int next = count; next < limit; ++next) {
      survival *= ahead(row(next), bin);
      gain += survival - step;
      if (gain > price[static_cast<size_t>(next) + 1] - price[static_cast<size_t>(count)]) return true;
    }
    return false;
  }
};

struct Chain {
  Filters filters;
  Key key;
  int limit;
  std::vector<double> price;
  double step, least = INFINITY, survival = 1.0;
  std::vector<int> tokens;
  std::vector<double> confidences;
  std::vector<std::vector<int>> beside;
  size_t bin = 0;
  int steps = 0;
  bool is_broken = false;
};

// out[i] = x[from[i]]
PACELINE_CLONES void gather(const float* x, const int32_t* from, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = x[from[i]];
}

class DraftLoop {
 public:
  DraftLoop(Program& program, int logits, int vocab, const Ints& ids)
      : program_(program), logits_(logits), vocab_(vocab), ids_(ids.data(), ids.data() + ids.shape(0)) {
    const size_t width = static_cast<size_t>(program.at(logits).width);
    if (width != (ids_.empty() ? static_cast<size_t>(vocab) : ids_.size()))
      throw std::invalid_argument("the head's rows and their tokens differ in number");
    rows_.resize(ids_.size());
    values_.resize(ids_.size());
    std::iota(rows_.begin(), rows_.end(), 0);
    std::sort(rows_.begin(), rows_.end(),
              [&](int a, int b) { return ids_[static_cast<size_t>(a)] < ids_[static_cast<size_t>(b)]; });
    std::sort(ids_.begin(), ids_.end());
    if (!ids_.empty() && (ids_.front() < 0 || ids_.back() >= vocab))
      throw std::invalid_argument("a head's row stands for no token");
    if (std::adjacent_find(ids_.begin(), ids_.end()) != ids_.end())
      throw std::invalid_argument("two of a head's rows stand for one token");
  }

  // Let a row of the head stand for another token.
  void assign(int row, int id) {
    const auto from = std::find(rows_.begin(), rows_.end(), row) - rows_.begin();
    auto to = std::lower_bound(ids_.begin(), ids_.end(), id) - ids_.begin();
    if (from == std::ssize(rows_) || id < 0 || id >= vocab_) throw std::invalid_argument("no such row or token");
    if (to != from && to != std::ssize(ids_) && ids_[static_cast<size_t>(to)] == id)
      throw std::invalid_argument("another row stands for this token");
    for (auto* list : {&ids_, &rows_}) {
      const auto begin = list->begin();
      if (to > from) std::rotate(begin + from, begin + from + 1, begin + to);
      else std::rotate(begin + to, begin + from, begin + from + 1);
    }
    ids_[static_cast<size_t>(to > from ? to - 1 : to)] = id;
  }

  double run(KVStore& store, const Ints& tokens, const Ints& starts, const Ints& lengths, const Table& tables,
             const Rules& rules, std::vector<Chain>& chains) {
    const int count = static_cast<int>(chains.size());
    std::vector<int> active;
    for (int s = 0; s < count; ++s) active.push_back(s);
    double seconds = 0;
    for (int step = 0; !active.empty(); ++step) {
      lay(step, active, chains, tokens, starts, lengths, tables);
      batch_.store = &store;
      const auto before = std::chrono::steady_clock::now();
      program_.run(batch_, {}, vocab_);
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
      for (size_t i = 0; i < active.size(); ++i)
        guess(chains[static_cast<size_t>(active[i])], static_cast<int>(i), rules);
      std::erase_if(active, [&](int s) {
        const Chain& c = chains[static_cast<size_t>(s)];
        const int guessed = static_cast<int>(c.tokens.size());
        return c.is_broken || guessed >= c.limit ||
               (!c.price.empty() && !rules.pays(guessed, c.survival, c.bin, c.price, c.step, c.limit));
      });
    }
    return seconds;
  }

 private:
  // The batch of one step: first what the caches lack, then each chain's last guess.
  void lay(int step, const std::vector<int>& active, const std::vector<Chain>& chains, const Ints& tokens,
           const Ints& starts, const Ints& lengths, const Table& tables) {
    for (auto* list : {&flat_, &positions_, &parents_, &wanted_, &pages_, &lengths_}) list->clear();
    starts_.assign(1, 0);
    for (int s : active) {
      const int begin = starts(static_cast<size_t>(s)), end = starts(static_cast<size_t>(s) + 1);
      int length = lengths(static_cast<size_t>(s));
      if (step == 0) {
        flat_.insert(flat_.end(), tokens.data() + begin, tokens.data() + end);
      } else {
        flat_.push_back(chains[static_cast<size_t>(s)].tokens.back());
        length += end - begin + step - 1;
      }
      lengths_.push_back(length);
      for (int node = 0; starts_.back() + node < static_cast<int>(flat_.size()); ++node) {
        positions_.push_back(length + node);
        parents_.push_back(node - 1);
      }
      starts_.push_back(static_cast<int>(flat_.size()));
      wanted_.push_back(starts_.back() - 1);
      pages_.insert(pages_.end(), &tables(static_cast<size_t>(s), 0),
                    &tables(static_cast<size_t>(s), 0) + tables.shape(1));
    }
    batch_.sequences = static_cast<int>(active.size());
    batch_.flat = static_cast<int>(flat_.size());
    batch_.wanted = static_cast<int>(wanted_.size());
    batch_.pages_per_sequence = static_cast<int>(tables.shape(1));
    batch_.tokens = flat_.data();
    batch_.positions = positions_.data();
    batch_.parents = parents_.data();
    batch_.starts = starts_.data();
    batch_.wanted_rows = wanted_.data();
    batch_.tables = pages_.data();
    batch_.lengths = lengths_.data();
  }

  void guess(Chain& c, int wanted, const Rules& rules) {
    Buffer& logits = program_.at(logits_);
    const int width = logits.width;
    float* row = logits.row(wanted);
    if (!ids_.empty()) {
      gather(row, rows_.data(), width, values_.data());
      row = values_.data();
    }
    const int32_t* tokens = ids_.empty() ? nullptr : ids_.data();
    const int depth = static_cast<int>(c.tokens.size());
    const Key key{c.key.seed, c.key.position + depth};
    ++c.steps;
    int place;
    float top;
    try {
      const Row all(row, width, tokens);
      place = draw(all, c.filters, key);
      top = all.top();
    } catch (const std::domain_error&) {  // a broken draft guesses nothing; the target goes on alone
      c.is_broken = true;
      return;
    }
    const double temperature = c.filters.is_greedy() ? 1.0 : c.filters.temperature;
    const double confidence = probability_of(row, width, top, row[place], temperature);
    c.bin = rules.bin(confidence);
    c.tokens.push_back(tokens ? tokens[place] : place);
    c.confidences.push_back(confidence);
    c.beside.emplace_back();
    // The next best of the same race: drawn again without the winners.
    std::vector<std::pair<int, float>> hidden{{place, row[place]}};
    for (size_t rank = 0; rank < rules.beside.shape(0) && c.survival * rules.beside(rank, c.bin) > c.least; ++rank) {
      row[hidden.back().first] = -INFINITY;
      try {
        const int other = draw(Row(row, width, tokens), c.filters, key);
        hidden.emplace_back(other, row[other]);
        c.beside.back().push_back(tokens ? tokens[other] : other);
      } catch (const std::domain_error&) {
        break;
      }
    }
    for (const auto& [at, value] : hidden) row[at] = value;
    c.survival *= rules.kept(rules.row(depth), c.bin);
  }

  Program& program_;
  int logits_, vocab_;
  std::vector<int32_t> ids_, rows_;  // the head's tokens, ascending, and the row of each; empty when they are the same
  std::vector<float> values_;        // logits in the order of tokens
  std::vector<int32_t> flat_, positions_, parents_, starts_, wanted_, pages_, lengths_;
  Batch batch_;
};

nb::object run(DraftLoop& loop, KVStore& store, const Ints& tokens, const Ints& starts, const Ints& lengths,
               const Table& tables, const std::vector<Wish>& wishes, const Reals& edges, const Rates& kept,
               const Rates& ahead, const Rates& beside) {
  const size_t count = wishes.size(), bins = edges.shape(0) + 1;
  if (starts.shape(0) != count + 1 || lengths.shape(0) != count || tables.shape(0) != count || count == 0 ||
      starts(0) != 0 || starts(count) != static_cast<int>(tokens.shape(0)))
    throw std::invalid_argument("batch arrays disagree in length");
  for (size_t s = 0; s < count; ++s)
    if (starts(s + 1) <= starts(s)) throw std::invalid_argument("every sequence needs at least one row");
  if (kept.shape(0) == 0 || kept.shape(1) != bins || ahead.shape(0) != kept.shape(0) || ahead.shape(1) != bins + 1 ||
      beside.shape(1) != bins)
    throw std::invalid_argument("tables of acceptance disagree in shape");
  std::vector<Chain> chains;
  for (const auto& [temperature, top_k, top_p, min_p, seed, position, limit, price, step] : wishes) {
    if (limit < 1 || (!price.empty() && price.size() < static_cast<size_t>(limit) + 1))
      throw std::invalid_argument("a chain needs a limit of at least one and a price for each node up to it");
    Chain chain{{temperature, top_k, top_p, 1.0, min_p}, {seed, position}, limit, price, step};
    for (size_t i = 1; i < price.size(); ++i) chain.least = std::min(chain.least, price[i] - price[i - 1]);
    chains.push_back(std::move(chain));
  }
  double seconds;
  {
    nb::gil_scoped_release release;
    seconds = loop.run(store, tokens, starts, lengths, tables, {edges, kept, ahead, beside}, chains);
  }
  std::vector<Got> got;
  for (Chain& c : chains) got.emplace_back(std::move(c.tokens), std::move(c.confidences), std::move(c.beside), c.steps);
  return nb::cast(std::make_tuple(std::move(got), seconds));
}

}  // namespace

void bind_draft(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<DraftLoop>(m, "DraftLoop", "Drafts chains with a recorded forward pass.")
      .def(nb::init<Program&, int, int, const Ints&>(), nb::keep_alive<1, 2>(), "program"_a, "logits"_a, "vocab"_a,
           "ids"_a)
      .def("assign", &DraftLoop::assign, "row"_a, "id"_a)
      .def("run", &run, "store"_a, "tokens"_a, "starts"_a, "lengths"_a, "tables"_a, "wishes"_a, "edges"_a, "kept"_a,
           "ahead"_a, "beside"_a);
}

}  // namespace paceline
