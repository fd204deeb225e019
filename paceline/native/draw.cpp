#include "draw.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>

#include "clones.h"
#include "weights.h"

namespace paceline {
namespace {

const uint64_t kFinite = rank_of(key_of(-FLT_MAX), 0xffffffffu);  // -inf is never drawn

// Which tokens may win: those from a rank on whose depth is nearer to the mean than a limit.
struct Members {
  const Row& row;
  Scale scale;
  uint64_t least = kFinite;
  double mean = 0, limit = std::numeric_limits<double>::infinity();

  bool has(int id) const {
    return row.rank(id) >= least && (std::isinf(limit) || scale.distance(row.x()[id], mean) < limit);
  }
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
    if (row.maxima()[b] < least_key || !race.may_win(value_of(row.maxima()[b]), least)) continue;
    (row.tokens() ? enter_some : enter_block)(race, kernels, key, static_cast<int>(b), least);
  }
  return race.winner;
}

struct Item {
  uint64_t key;
  int64_t weight;
};

// The least key such that the items up to it weigh `need`, which is not more than all do.
uint64_t reach(std::vector<Item> items, int64_t need) {
  constexpr size_t kSample = 127, kMargin = 8;
  const auto by_key = [](const Item& a, const Item& b) { return a.key < b.key; };
  const auto weigh = [](auto from, auto to) {
    int64_t sum = 0;
    for (; from != to; ++from) sum += from->weight;
    return sum;
  };
  int64_t total = weigh(items.begin(), items.end());
  while (items.size() > 8 * kSample) {
    // A sample says about where; what the two bounds around it leave is looked at again.
    std::vector<Item> sample;
    for (size_t i = 0; i < kSample; ++i) sample.push_back(items[i * items.size() / kSample]);
    std::sort(sample.begin(), sample.end(), by_key);
    const double part = static_cast<double>(need) / static_cast<double>(total);
    const double wanted = part * static_cast<double>(weigh(sample.begin(), sample.end()));
    size_t at = 0;
    for (double sum = 0; at + 1 < kSample; ++at)
      if ((sum += static_cast<double>(sample[at].weight)) >= wanted) break;
    const uint64_t low = at < kMargin ? 0 : sample[at - kMargin].key;
    const uint64_t high = at + kMargin < kSample ? sample[at + kMargin].key : ~uint64_t{0};
    const auto middle = std::partition(items.begin(), items.end(), [low](const Item& i) { return i.key < low; });
    const auto end = std::partition(middle, items.end(), [high](const Item& i) { return i.key <= high; });
    const int64_t below = weigh(items.begin(), middle), between = weigh(middle, end);
    std::vector<Item> left;
    if (need <= below) {
      left.assign(items.begin(), middle), total = below;
    } else if (need <= below + between) {
      left.assign(middle, end), need -= below, total = between;
    } else {
      left.assign(end, items.end()), need -= below + between, total -= below + between;
    }
    if (left.size() == items.size()) break;  // one key for most of them
    items = std::move(left);
  }
  std::sort(items.begin(), items.end(), by_key);
  auto item = items.begin();
  while (item + 1 != items.end() && item->weight < need) need -= (item++)->weight;
  return item->key;
}

// The least rank whose logit is not below that of a token `min_p` times as likely as one with logit `top`.
uint64_t min_p_rank(float top, const Filters& f) {
  const double floor = std::max(static_cast<double>(top) + f.temperature * std::log(f.min_p), -double{FLT_MAX});
  float least = static_cast<float>(floor);
  if (static_cast<double>(least) < floor) least = std::nextafter(least, INFINITY);
  return rank_of(key_of(least), 0xffffffffu);
}

// The law, filter by filter.
Members members_of(const Row& row, const Filters& f) {
  Members members{row, {row.top(), f.temperature}};
  const Scale& scale = members.scale;
  std::vector<uint64_t> ranks;
  if (f.top_k > 0 && f.top_k < row.size()) {
    ranks = row.best(static_cast<size_t>(f.top_k));
    std::erase_if(ranks, [](uint64_t r) { return r < kFinite; });
    members.least = *std::min_element(ranks.begin(), ranks.end());
  } else {
    ranks = row.reaching(kFinite);
  }
  const size_t count = ranks.size();
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value_of(key_in(ranks[i]));
  std::vector<int64_t> weights(count), moments(count);
  weigh(scale, values.data(), static_cast<int>(count), weights.data(), moments.data());
  if (f.top_p < 1.0) {
    std::vector<Item> items(count);
    int64_t total = 0;
    for (size_t i = 0; i < count; ++i) items[i] = {~ranks[i], weights[i]}, total += weights[i];
    members.least = ~reach(std::move(items), share(total, f.top_p));
  }
  float top = row.top();
  if (f.typical_p < 1.0) {
    int64_t total = 0, moment = 0;
    for (size_t i = 0; i < count; ++i) {
      const int64_t in = -static_cast<int64_t>(ranks[i] >= members.least);
      total += weights[i] & in, moment += moments[i] & in;
    }
    members.mean = static_cast<double>(moment) / static_cast<double>(total);
    std::vector<Item> items;
    items.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      if (ranks[i] < members.least) continue;
      const double distance = scale.distance(values[i], members.mean);
      items.push_back({0, weights[i]});
      __builtin_memcpy(&items.back().key, &distance, 8);  // bits of positive numbers are in their order
    }
    const uint64_t last = reach(std::move(items), share(total, f.typical_p));
    double distance;
    __builtin_memcpy(&distance, &last, 8);
    members.limit = std::nextafter(distance, INFINITY);
    top = -INFINITY;
    for (size_t i = 0; i < count; ++i)
      if (ranks[i] >= members.least && scale.distance(values[i], members.mean) <= distance)
        top = std::max(top, values[i]);
  }
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(top, f));
  return members;
}

// Draw from a superset; a winner outside the nucleus bounds it from below.
int draw_nucleus(const Row& row, const Filters& f, const Key& key) {
  Members members{row, {row.top(), f.temperature}};
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(row.top(), f));
  while (true) {
    const int winner = race(members, f.temperature, key);
    const Split mass = split(members.scale, row.x(), row.size(), row.x()[winner], winner);
    if (mass.before < share(mass.total, f.top_p)) return winner;
    members.least = row.rank(winner) + 1;
  }
}

// The same for the tokens nearest the mean.
int draw_typical(const Row& row, const Filters& f, const Key& key) {
  Members members{row, {row.top(), f.temperature}};
  const Sums sums = sum_moments(members.scale, row.x(), row.size());
  const int64_t need = share(sums.weight, f.typical_p);
  members.mean = static_cast<double>(sums.moment) / static_cast<double>(sums.weight);
  while (true) {
    const int winner = race(members, f.temperature, key);
    const double distance = members.scale.distance(row.x()[winner], members.mean);
    if (sum_near(members.scale, row.x(), row.size(), members.mean, distance) < need) return winner;
    members.limit = distance;
  }
}

}  // namespace

int draw(const Row& row, const Filters& f, const Key& key) {
  if (f.is_greedy()) return row.argmax();
  const bool has_top_k = f.top_k > 0 && f.top_k < row.size(), is_nucleus = f.top_p < 1.0,
             is_typical = f.typical_p < 1.0;
  if (!has_top_k && is_nucleus && !is_typical) return draw_nucleus(row, f, key);
  if (!has_top_k && !is_nucleus && is_typical && f.min_p <= 0.0) return draw_typical(row, f, key);
  if (has_top_k || is_typical) return race(members_of(row, f), f.temperature, key);
  Members members{row, {row.top(), f.temperature}};
  if (f.min_p > 0.0) members.least = std::max(members.least, min_p_rank(row.top(), f));
  return race(members, f.temperature, key);
}

std::vector<int> survivors(const Row& row, const Filters& f) {
  if (f.is_greedy()) return {row.argmax()};
  const Members members = members_of(row, f);
  std::vector<uint64_t> ranks = row.reaching(members.least);
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  std::vector<int> ids;
  for (uint64_t r : ranks)
    if (members.has(id_in(r))) ids.push_back(id_in(r));
  return ids;
}

}  // namespace paceline
