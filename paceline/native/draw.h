// Drawing a token from a row of logits: greedy, or by Gumbel noise keyed by (seed, position, token).
//
// The distribution is: temperature, then top-k, top-p, typical-p, min-p. The result is that of the plain twin,
// sample/coupled.py, which looks at everything in turn; here bounds skip tokens that cannot win, and where one filter
// is left the winner is drawn first and asked afterwards whether it is in.
#pragma once

#include <vector>

#include "noise.h"
#include "row.h"

namespace paceline {

struct Filters {
  double temperature;
  int top_k;
  double top_p, typical_p, min_p;

  bool is_greedy() const { return temperature <= 1e-5; }
};

// The id of the token drawn: its place, where the row lacks some.
int draw(const Row&, const Filters&, const Key&);

// The distribution's tokens, by id or best first.
std::vector<int> kept(const Row&, const Filters&);
std::vector<int> survivors(const Row&, const Filters&);

}  // namespace paceline
