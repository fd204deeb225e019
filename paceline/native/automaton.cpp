#include "automaton.h"

#include <algorithm>
#include <stdexcept>

namespace paceline {
namespace {

constexpr int kListed = 4;  // a state with more edges has them hashed
constexpr int32_t kMost = 1 << 28;

uint64_t hash_of(int32_t state, int32_t token) {
  uint64_t x = static_cast<uint64_t>(static_cast<uint32_t>(state)) << 32 | static_cast<uint32_t>(token);
  x *= 0x9e3779b97f4a7c15u;
  return x ^ x >> 29;
}

}  // namespace

void Automaton::clear() {
  text_.clear();
  states_.assign(1, State{});
  edges_.clear();
  slots_.assign(64, 0);
  hashed_ = 0;
  whole_ = bounded_ = 0;
}

size_t Automaton::nbytes() const {
  return text_.capacity() * sizeof(int32_t) + states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(Edge) +
         slots_.capacity() * sizeof(int32_t);
}

int32_t Automaton::target(int32_t state, int32_t token) const {
  const Edge* found = const_cast<Automaton*>(this)->find(state, token);
  return found ? found->target : -1;
}

Automaton::Edge* Automaton::find(int32_t state, int32_t token) {
  const State& from = at(state);
  if (from.edges <= kListed) {
    for (int32_t e = from.first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next)
      if (edges_[static_cast<size_t>(e)].token == token) return &edges_[static_cast<size_t>(e)];
    return nullptr;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash_of(state, token) & mask; slots_[slot]; slot = (slot + 1) & mask) {
    Edge& edge = edges_[static_cast<size_t>(slots_[slot] - 1)];
    if (edge.token == token && edge.from == state) return &edge;
  }
  return nullptr;
}

void Automaton::link(int32_t from, int32_t token, int32_t to) {
  State& state = at(from);
  const int32_t edge = static_cast<int32_t>(edges_.size());
  edges_.push_back({from, token, to, state.first_edge});
  state.first_edge = edge;
  if (++state.edges <= kListed) return;
  if (state.edges > kListed + 1) return remember(edge);
  for (int32_t e = edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) remember(e);
}

void Automaton::remember(int32_t edge) {
  if (2 * ++hashed_ > slots_.size()) rehash();
  const Edge& added = edges_[static_cast<size_t>(edge)];
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(added.from, added.token) & mask;
  while (slots_[slot]) slot = (slot + 1) & mask;
  slots_[slot] = edge + 1;
}

void Automaton::rehash() {
  std::vector<int32_t> old(2 * slots_.size());
  old.swap(slots_);
  const size_t mask = slots_.size() - 1;
  for (const int32_t entry : old) {
    if (!entry) continue;
    const Edge& edge = edges_[static_cast<size_t>(entry - 1)];
    size_t slot = hash_of(edge.from, edge.token) & mask;
    while (slots_[slot]) slot = (slot + 1) & mask;
    slots_[slot] = entry;
  }
}

int32_t Automaton::clone(int32_t state, int32_t length) {
  const int32_t copy = static_cast<int32_t>(states_.size());
  State made = at(state);
  made.length = length;
  made.first_edge = -1;
  made.edges = 0;
  std::vector<int32_t> order;
  for (int32_t e = at(state).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) order.push_back(e);
  states_.push_back(made);
  for (auto e = order.rbegin(); e != order.rend(); ++e) {
    const Edge edge = edges_[static_cast<size_t>(*e)];
    link(copy, edge.token, edge.target);
  }
  at(state).link = copy;
  return copy;
}

// The state of the last `length` tokens of a longer string's state.
int32_t Automaton::shorten(int32_t state, int32_t length) const {
  while (states_[static_cast<size_t>(state)].link >= 0 &&
         states_[static_cast<size_t>(states_[static_cast<size_t>(state)].link)].length >= length)
    state = states_[static_cast<size_t>(state)].link;
  return state;
}

void Automaton::append(int32_t token) {
  if (size() >= kMost) throw std::length_error("a text of more than 2^28 tokens");
  const int32_t made = static_cast<int32_t>(states_.size()), before = size();
  states_.push_back(State{});
  at(made).length = before + 1;
  int32_t p = whole_;
  Edge* edge = nullptr;
  for (; p >= 0 && !(edge = find(p, token)); p = at(p).link) link(p, token, made);
  if (p < 0) {
    at(made).link = 0;
  } else {
    const int32_t q = edge->target;
    if (at(p).length + 1 == at(q).length) {
      at(made).link = q;
    } else {
      const int32_t copy = clone(q, at(p).length + 1);
      for (; p >= 0 && (edge = find(p, token)) && edge->target == q; p = at(p).link) edge->target = copy;
      at(made).link = copy;
    }
  }
  whole_ = made;
  text_.push_back(token);
  count(before, token);
}

// Count the new end in every context of at most kContext + 1 tokens, and what followed those before it.
void Automaton::count(int32_t before, int32_t token) {
  const int32_t earlier = shorten(bounded_, std::min(before, kContext + 1));  // a clone may have split it
  bounded_ = shorten(target(earlier, token), std::min(before + 1, kContext + 1));
  for (int32_t v = bounded_; v > 0; v = at(v).link) {
    ++at(v).count;
    at(v).last = before;
  }
  at(0).count = before + 1;
  at(0).last = before;
  int32_t v = bounded_;
  for (int32_t p = shorten(earlier, std::min(before, kContext)); p >= 0; p = at(p).link) {
    v = shorten(v, std::min(at(p).length, kContext) + 1);
    if (at(v).count >= at(p).heavy_count) at(p).heavy = token, at(p).heavy_count = at(v).count;
  }
}

Automaton::Context Automaton::end() const {
  const int32_t length = std::min(size(), kContext);
  return {shorten(bounded_, length), length};
}

Automaton::Context Automaton::step(Context context, int32_t token) const {
  int32_t v = context.state, length = context.length, to = -1;
  while ((to = target(v, token)) < 0) {
    v = state(v).link;
    if (v < 0) return {0, 0};
    length = state(v).length;
  }
  length = std::min(length + 1, kContext);
  return {shorten(to, length), length};
}

}  // namespace paceline
