#include "draw.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

#include "buckets.h"
#include "clones.h"
#include "weights.h"

namespace paceline {
namespace {

constexpr double kLikely = 0.75;  // from this share on a nucleus mostly holds whoever wins without it

// Which tokens may win: those from a rank on, up to a key.
struct Members {
  const Row& row;
  Scale scale;
  uint64_t least = kFinite;
  int32_t most = key_of(INFINITY);

  bool has(int id) const { return row.rank(id) >= least && key_of(row.x()[id]) <= most; }
};

PACELINE_CLONES bool any_reaches(const uint32_t* words, uint32_t least) {
  uint32_t found = 0;
  for (int i = 0; i < kBlock; ++i) found |= words[i] >= least ? 1u : 0u;
  return found != 0;
}

// argmax of logit / temperature + noise over the members, so far.
struct Race {
  const Members& members;
  double temperature;
  int winner = -1;
  double best = -std::numeric_limits<double>::infinity();

  void enter(int id, uint32_t word) {
    const double sum = static_cast<double>(members.row.x()[id]) / temperature + gumbel(word);
    if (sum > best || (sum == best && id < winner)) best = sum, winner = id;
  }

  // The least word that may let a logit win; false if none does.
  // With k = 2^32 - word, noise = -log(-log u) <= -log(1 - u) = -log((k - 1/2) / 2^32). So a token that lacks
  // `best - score` wins only if k - 1/2 <= 2^room; the slack covers rounding.
  bool may_win(float logit, uint32_t& least) const {
    least = 0;
    if (winner < 0) return true;
    const double score = static_cast<double>(logit) / temperature;
    const double slack = 1e-9 + 1e-15 * (std::fabs(best) + std::fabs(score));
    const double room = 32.0 - (best - score) * 1.4426950408889634 + slack;
    if (room < -1.0) return false;
    least = room >= 31.0 ? 0 : room < 0.0 ? 0xffffffffu : 0u - (2u << static_cast<int>(room));
    return true;
  }

  // No logit below it wins: the largest noise is log 2^33 = 22.87.
  double floor() const { return (best - 22.9 - 1e-14 * std::fabs(best)) * temperature; }
};

// Enter those of a block whose word may let them win.
void enter_block(Race& race, const Kernels& kernels, const Key& key, int block, uint32_t least) {
  const Row& row = race.members.row;
  uint32_t words[kBlock];
  noise(kernels, key, block, words);
  if (!any_reaches(words, least)) return;
  const int first = block * kBlock, end = std::min(row.size(), first + kBlock);
  for (int id = first; id < end; ++id)
    if (const uint32_t word = words[place(id)]; word >= least && race.members.has(id)) race.enter(id, word);
}

// The same where a block's tokens are any: noise is made for those only that might win with the largest.
void enter_some(Race& race, const Kernels& kernels, const Key& key, int block, uint32_t least) {
  const Row& row = race.members.row;
  const int first = block * kBlock, end = std::min(row.size(), first + kBlock);
  const double floor = race.floor();
  int ids[kBlock], count = 0;
  for (int id = first; id < end; ++id) {
    ids[count] = id;
    count += static_cast<double>(row.x()[id]) >= floor ? 1 : 0;
  }
  for (int from = 0; from < count; from += 16) {
    const int some = std::min(count - from, 16);
    int32_t tokens[16] = {};
    uint32_t words[16];
    for (int i = 0; i < some; ++i) tokens[i] = row.token(ids[from + i]);
    noise_of(kernels, key, tokens, words);
    for (int i = 0; i < some; ++i)
      if (words[i] >= least && race.members.has(ids[from + i])) race.enter(ids[from + i], words[i]);
  }
}

// Who wins the race of the members, of which there is one.
int race(const Members& members, double temperature, const Key& key) {
  static const Kernels& kernels = noise_kernels();
  const Row& row = members.row;
  Race race{members, temperature};
  if (const int leader = row.argmax(); members.has(leader)) {
    const int token = row.token(leader);
    uint32_t words[kBlock];
    noise(kernels, key, token / kBlock, words);
    race.enter(leader, words[place(token)]);
  }
  const int32_t least_key = key_in(members.least);
  for (size_t b = 0; b < row.maxima().size(); ++b) {
    uint32_t least;
    const float score = value_of(std::min(row.maxima()[b], members.most));
    if (row.maxima()[b] < least_key || !race.may_win(score, least)) continue;
    (row.tokens() ? enter_some : enter_block)(race, kernels, key, static_cast<int>(b), least);
  }
  return race.winner;
}

// The least rank whose logit is not below that of a token `min_p` times as likely as one with logit `top`.
uint64_t min_p_rank(float top, const Filters& f) {
  const double floor = std::max(static_cast<double>(top) + f.temperature * std::log(f.min_p), -double{FLT_MAX});
  float least = static_cast<float>(floor);
  if (static_cast<double>(least) < floor) least = std::nextafter(least, INFINITY);
  return rank_of(key_of(least), 0xffffffffu);
}

// The least rank of the best k.
uint64_t top_k_rank(const Row& row, const Scale& scale, int k) {
  if (static_cast<size_t>(k) > row.maxima().size()) {
    Buckets buckets(row, scale, kFinite, Buckets::Unit::Token, 1.0);
    return buckets.cut(std::min<int64_t>(k, buckets.total().weight));
  }
  const std::vector<uint64_t> ranks = row.best(static_cast<size_t>(k));
  return *std::min_element(ranks.begin(), ranks.end());
}

// Keeps the members nearest the mean of depths: an interval of keys.
void keep_typical(Members& members, const Buckets& buckets, double part) {
  const Sums sums = buckets.total();
  const double mean = static_cast<double>(sums.moment) / static_cast<double>(sums.weight);
  const double limit = buckets.reach(mean, share(sums.weight, part));
  const auto depth = [&](int32_t key) { return static_cast<double>(members.scale.depth(value_of(key))); };
  const int32_t bottom = key_of(-FLT_MAX), top = key_of(members.row.top());
  const int32_t low = first_key(bottom, top, [&](int32_t key) { return depth(key) - mean >= -limit; });
  const int32_t high = first_key(low, top + 1, [&](int32_t key) { return depth(key) - mean > limit; }) - 1;
  members.least = std::max(members.least, rank_of(low, 0xffffffffu));
  members.most = high;
}

// The law, filter by filter.
Members members_of(const Row& row, const Filters& f) {
  Members members{row, {row.top(), f.temperature}};
  const Scale& scale = members.scale;
  if (f.top_k > 0 && f.top_k < row.size()) members.least = std::max(members.least, top_k_rank(row, scale, f.top_k));
  float top = row.top();
  if (f.top_p < 1.0 || f.typical_p < 1.0) {
    Buckets buckets(row, scale, members.least, Buckets::Unit::Weight, std::min(f.top_p, f.typical_p));
    if (f.top_p < 1.0) members.least = buckets.cut(share(buckets.total().weight, f.top_p));
    if (f.typical_p < 1.0) {
      keep_typical(members, buckets, f.typical_p);
      top = value_of(row.extent(key_in(members.least), members.most).second);
    }
  }
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(top, f));
  return members;
}

// Draw from a superset, which is quick and mostly right; only a winner outside the nucleus makes it be looked for.
int draw_nucleus(const Row& row, const Filters& f, const Key& key) {
  Members members{row, {row.top(), f.temperature}};
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(row.top(), f));
  const int winner = race(members, f.temperature, key);
  const Split mass = split(members.scale, row.x(), row.size(), row.x()[winner], winner);
  if (mass.before < share(mass.total, f.top_p)) return winner;
  return race(members_of(row, f), f.temperature, key);
}

}  // namespace

int draw(const Row& row, const Filters& f, const Key& key) {
  if (f.is_greedy()) return row.argmax();
  const bool has_top_k = f.top_k > 0 && f.top_k < row.size(), is_nucleus = f.top_p < 1.0,
             is_typical = f.typical_p < 1.0;
  if (!has_top_k && is_nucleus && !is_typical && f.top_p > kLikely) return draw_nucleus(row, f, key);
  if (has_top_k || is_nucleus || is_typical) return race(members_of(row, f), f.temperature, key);
  Members members{row, {row.top(), f.temperature}};
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(row.top(), f));
  return race(members, f.temperature, key);
}

std::vector<int> kept(const Row& row, const Filters& f) {
  if (f.is_greedy()) return {row.argmax()};
  const Members members = members_of(row, f);
  std::vector<int> ids;
  for (uint64_t r : row.within(members.least, members.most)) ids.push_back(id_in(r));
  return ids;
}

std::vector<int> survivors(const Row& row, const Filters& f) {
  std::vector<int> ids = kept(row, f);
  std::sort(ids.begin(), ids.end(), [&](int a, int b) { return row.rank(a) > row.rank(b); });
  return ids;
}

}  // namespace paceline
