#include "draw.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "buckets.h"
#include "clones.h"
#include "weights.h"

namespace paceline {
namespace {

constexpr double kLikely = 0.75;  // from this share on a nucleus mostly holds the token that wins without it
constexpr size_t kFew = 4096;     // tokens among which the k-th is sought one by one

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
  for (int i = 0; i < kWords; ++i) found |= words[i] >= least ? 1u : 0u;
  return found != 0;
}

// argmax of logit / temperature + noise over the members, so far.
class Race {
 public:
  Race(const Members& members, double temperature, const Key& key)
      : members_(members),
        row_(members.row),
        temperature_(temperature),
        key_(key),
        kernels_(noise_kernels()),
        group_(row_.tokens() ? 1 : 4) {
    const int leader = row_.argmax();
    if (!members.has(leader)) return;
    ids_[asked_++] = leader - leader % group_;
    answer();
  }

  // A block of tokens none of which is likelier than `logit`.
  void enter(int block, float logit) {
    if (!(logit >= floor_)) return;
    float padded[kBlock];
    const float* x = row_.block(block, padded);
    asked_ += kernels_.reaching(x, floor_, INFINITY, block * kBlock, group_, ids_ + asked_);
    most_ = std::max(most_, logit);
    for (; asked_ >= kBatch; most_ = logit) answer();  // those left are of this block
  }

  int winner() {
    if (asked_ > 0) answer();
    return winner_;
  }

 private:
  // The least word that may let a logit win.
  // With k = 2^32 - word, noise = -log(-log u) <= -log(1 - u) = -log((k - 1/2) / 2^32). So a token that lacks
  // `best - score` wins only if k - 1/2 <= 2^room; the slack covers rounding.
  uint32_t least_word(float logit) const {
    if (winner_ < 0) return 0;
    const double score = static_cast<double>(logit) / temperature_;
    const double slack = 1e-9 + 1e-15 * (std::fabs(best_) + std::fabs(score));
    const double room = 32.0 - (best_ - score) * 1.4426950408889634 + slack;
    return !(room < 31.0) ? 0 : room < 0.0 ? 0xffffffffu : 0u - (2u << static_cast<int>(room));
  }

  // Make the words of the tokens that asked first: a batch costs the same however few of its words count.
  void answer() {
    const int count = std::min(asked_, kBatch);
    uint32_t words[kWords];
    for (int i = 0; i < count; ++i) counters_[i] = counter(row_.token(ids_[i]));
    noise(kernels_, key_, counters_, words);
    const uint32_t least = least_word(most_);
    if (any_reaches(words, least)) {
      for (int i = 0; i < count; ++i)
        for (int id = ids_[i]; id < std::min(ids_[i] + group_, row_.size()); ++id)
          if (const uint32_t word = words[lane(row_.token(id)) * kBatch + i]; word >= least && members_.has(id))
            run(id, word);
    }
    asked_ -= count;
    std::copy(ids_ + count, ids_ + count + asked_, ids_);
  }

  void run(int id, uint32_t word) {
    const double sum = static_cast<double>(row_.x()[id]) / temperature_ + gumbel(word);
    if (sum < best_ || (sum == best_ && id >= winner_)) return;
    best_ = sum, winner_ = id;
    // No logit below it wins: the largest noise is log 2^33 = 22.87.
    const double floor = (best_ - 22.9 - 1e-14 * std::fabs(best_)) * temperature_;
    floor_ = std::max(std::nextafter(static_cast<float>(std::max(floor, -double{FLT_MAX})), -INFINITY), -FLT_MAX);
  }

  const Members& members_;
  const Row& row_;
  double temperature_;
  Key key_;
  const Kernels& kernels_;
  int group_;  // tokens that ask together: those of a counter, where the row has all of them
  int winner_ = -1;
  double best_ = -std::numeric_limits<double>::infinity();
  float floor_ = -FLT_MAX;                // never less: -inf wins nothing, and is what a last block is padded with
  int asked_ = 0, ids_[kBatch + kBlock];  // the first of each group whose words are wanted
  uint32_t counters_[kBatch] = {};
  float most_ = -INFINITY;  // no likelier token is among them
};

// The token that wins the race of the members, of which there is one.
int race(const Members& members, double temperature, const Key& key) {
  const std::vector<int32_t>& maxima = members.row.maxima();
  const int32_t least = key_in(members.least);
  Race race(members, temperature, key);
  for (size_t b = 0; b < maxima.size(); ++b)
    if (maxima[b] >= least) race.enter(static_cast<int>(b), value_of(std::min(maxima[b], members.most)));
  return race.winner();
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
  if (static_cast<size_t>(k) <= row.maxima().size()) {
    const std::vector<int> ids =
        row.within(std::max(kFinite, rank_of(row.reached_by(static_cast<size_t>(k)), 0xffffffffu)));
    if (ids.size() < static_cast<size_t>(k)) return kFinite;
    if (ids.size() < kFew) {
      std::vector<uint64_t> ranks(ids.size());
      std::transform(ids.begin(), ids.end(), ranks.begin(), [&](int id) { return row.rank(id); });
      std::nth_element(ranks.begin(), ranks.begin() + k - 1, ranks.end(), std::greater<>());
      return ranks[static_cast<size_t>(k) - 1];
    }
  }
  Buckets buckets(row, scale, Buckets::Unit::Token, 1.0);
  return buckets.cut(std::min<int64_t>(k, buckets.total().weight));
}

// The tokens of a row at or above a rank, as a row of their own.
class Part {
 public:
  Part(const Row& row, uint64_t least) : ids_(row.within(least)), logits_(logits(row)), row_(logits_.data(), size()) {}

  const Row& row() const { return row_; }
  // What a rank in it is in the whole.
  uint64_t whole(uint64_t rank) const {
    return rank_of(key_in(rank), static_cast<uint32_t>(ids_[static_cast<size_t>(id_in(rank))]));
  }

 private:
  int size() const { return static_cast<int>(ids_.size()); }
  std::vector<float> logits(const Row& row) const {
    std::vector<float> logits(ids_.size());
    for (size_t i = 0; i < ids_.size(); ++i) logits[i] = row.x()[ids_[i]];
    return logits;
  }

  std::vector<int> ids_;
  std::vector<float> logits_;
  Row row_;
};

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

// The distribution, filter by filter.
Members members_of(const Row& row, const Filters& f) {
  Members members{row, {row.top(), f.temperature}};
  const Scale& scale = members.scale;
  if (f.top_k > 0 && f.top_k < row.size()) members.least = std::max(members.least, top_k_rank(row, scale, f.top_k));
  float top = row.top();
  if (f.top_p < 1.0 || f.typical_p < 1.0) {
    std::optional<Part> part;
    if (members.least != kFinite) part.emplace(row, members.least);
    Buckets buckets(part ? part->row() : row, scale, Buckets::Unit::Weight, std::min(f.top_p, f.typical_p));
    if (f.top_p < 1.0) {
      const uint64_t cut = buckets.cut(share(buckets.total().weight, f.top_p));
      members.least = part ? part->whole(cut) : cut;
    }
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
  return row.within(members.least, members.most);
}

std::vector<int> survivors(const Row& row, const Filters& f) {
  std::vector<int> ids = kept(row, f);
  std::sort(ids.begin(), ids.end(), [&](int a, int b) { return row.rank(a) > row.rank(b); });
  return ids;
}

}  // namespace paceline
