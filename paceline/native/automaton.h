// A suffix automaton over tokens, grown token by token, that knows how often each short context occurred and was
// followed by what.
//
// States are sets of substrings with the same end positions (Blumer et al. 1985). Counts are kept exact for substrings
// of at most kContext + 1 tokens, by walking the suffix links of that long a suffix at every token: at most that many
// steps, a handful in natural text. -1 is a separator: it is never guessed and no context of a text holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline {

constexpr int kContext = 32;  // longest context that is told from longer ones

class Automaton {
 public:
  struct State {
    int32_t length = 0, link = -1;
    int32_t count = 0, last = -1;         // occurrences, and where the latest ends
    int32_t first_edge = -1, edges = 0;   // newest first
    int32_t heavy = -1, heavy_count = 0;  // the most frequent token that followed, latest of equals
  };
  struct Edge {
    int32_t from, token, target, next;
  };
  struct Context {
    int32_t state = 0, length = 0;  // the longest suffix that occurs, of at most kContext tokens
  };

  Automaton() { clear(); }
  void clear();
  void append(int32_t token);

  // The context after one more token.
  Context step(Context context, int32_t token) const;
  // The text's own end as a context.
  Context end() const;

  const State& state(int32_t index) const { return states_[static_cast<size_t>(index)]; }
  const Edge& edge(int32_t index) const { return edges_[static_cast<size_t>(index)]; }
  int32_t target(int32_t state, int32_t token) const;  // -1 if there is none
  const std::vector<int32_t>& text() const { return text_; }
  int32_t size() const { return static_cast<int32_t>(text_.size()); }
  size_t nbytes() const;

 private:
  State& at(int32_t index) { return states_[static_cast<size_t>(index)]; }
  Edge* find(int32_t state, int32_t token);
  void link(int32_t from, int32_t token, int32_t to);
  void remember(int32_t edge);
  void rehash();
  int32_t clone(int32_t state, int32_t length);
  int32_t shorten(int32_t state, int32_t length) const;
  void count(int32_t before, int32_t token);

  std::vector<int32_t> text_;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<int32_t> slots_;  // a hash of the edges of states with many: index + 1, 0 is free
  size_t hashed_ = 0;
  int32_t whole_ = 0;    // the state of the whole text
  int32_t bounded_ = 0;  // the state of its last kContext + 1 tokens
};

}  // namespace paceline
