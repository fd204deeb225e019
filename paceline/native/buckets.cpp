#include "buckets.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "clones.h"
#include "noise.h"

namespace paceline {
namespace {

constexpr size_t kRun = 4;  // blocks added up at once
constexpr int kTurns = 4;
constexpr double kMany = 4096;      // tokens in a bucket; they may be all alike
constexpr double kLightest = 46.0;  // what is deeper weighs nothing

// Where each token is added. Tokens take turns with a bucket's places, which are side by side: one addition after the
// other to one place would wait for memory. What is not finite goes behind the last bucket.
PACELINE_CLONES void place(const Scale& given, const float* x, int n, float steps, int last, int32_t* places) {
  const Scale scale = given;
  for (int i = 0; i < n; ++i) {
    const int32_t bucket = bucket_at(scale.depth(x[i]), steps, last);
    const int32_t beyond = (last + 1 - bucket) & -static_cast<int32_t>(x[i] < -FLT_MAX);
    places[i] = (bucket + beyond) * kTurns + i % kTurns;
  }
}

struct Item {
  uint64_t key;
  int64_t weight;
};

// The least key such that the items up to it weigh `need`; the greatest if all do not.
uint64_t reach_among(std::vector<Item>& items, int64_t need) {
  const auto weigh = [](auto from, auto to) {
    int64_t sum = 0;
    for (; from != to; ++from) sum += from->weight;
    return sum;
  };
  auto first = items.begin(), end = items.end();
  while (true) {
    const uint64_t a = first->key, b = (first + (end - first) / 2)->key, c = (end - 1)->key;
    const uint64_t pivot = std::max(std::min(a, b), std::min(std::max(a, b), c));
    const auto same = std::partition(first, end, [pivot](const Item& item) { return item.key < pivot; });
    const auto above = std::partition(same, end, [pivot](const Item& item) { return item.key == pivot; });
    const int64_t below = weigh(first, same), equal = weigh(same, above);
    if (need <= below) {
      end = same;
    } else if (need <= below + equal || above == end) {
      return pivot;
    } else {
      need -= below + equal;
      first = above;
    }
  }
}

// The depth beyond which one bucket is enough: where the row seems to end, or the rest is too light to be cut in.
double range_of(const Row& row, const Scale& scale, double part) {
  constexpr size_t kSample = 256;
  float least = row.top();
  for (size_t i = 0; i < kSample; ++i) least = std::min(least, row.x()[i * static_cast<size_t>(row.size()) / kSample]);
  double range = std::min(kLightest, -static_cast<double>(scale.depth(least)));
  if (part < 1.0) range = std::min(range, std::log2(row.size() / (1.0 - part)));
  return std::max(range, 1e-6);
}

}  // namespace

Buckets::Buckets(const Row& row, const Scale& scale, Unit unit, double part) : row_(row), scale_(scale), unit_(unit) {
  const double range = range_of(row, scale, part);
  steps_ = static_cast<float>(std::exp2(std::floor(std::log2((kCount - 2) / range))));
  last_ = static_cast<int>(std::ceil(range * static_cast<double>(steps_)));
  fill();
}

void Buckets::fill() {
  const std::vector<int32_t>& maxima = row_.maxima();
  const int32_t least = key_in(least_);
  std::array<Sums, size_t{kCount} * kTurns> turns{};
  for (size_t b = 0, end = 0; b < maxima.size(); b = end) {
    end = b + 1;
    if (maxima[b] < least) continue;
    const bool is_deep = of(maxima[b]) == last_;
    while (end < maxima.size() && end - b < kRun && maxima[end] >= least && (of(maxima[end]) == last_) == is_deep)
      ++end;
    const int first = static_cast<int>(b) * kBlock, n = std::min(row_.size(), static_cast<int>(end) * kBlock) - first;
    if (is_deep && unit_ == Unit::Weight) sums_[static_cast<size_t>(last_)] += sum_moments(scale_, row_.x() + first, n);
    else add(first, n, turns.data());
  }
  for (size_t b = 0; b <= static_cast<size_t>(last_); ++b)
    for (size_t turn = 0; turn < kTurns; ++turn) sums_[b] += turns[b * kTurns + turn];
}

void Buckets::add(int first, int n, Sums* sums) const {
  const float* x = row_.x() + first;
  int32_t places[kRun * kBlock];
  place(scale_, x, n, steps_, last_, places);
  if (unit_ == Unit::Token) {
    for (int i = 0; i < n; ++i) sums[places[i]].weight += 1;
    return;
  }
  Sums each[kRun * kBlock];
  weigh(scale_, x, n, each);
  for (int i = 0; i < n; ++i) sums[places[i]] += each[i];
}

Sums Buckets::total() const {
  Sums total{};
  for (const Sums& sums : sums_) total += sums;
  return total;
}

uint64_t Buckets::cut(int64_t need) {
  int at = 0;
  while (at < last_ && sums_[static_cast<size_t>(at)].weight < need) need -= sums_[static_cast<size_t>(at++)].weight;
  Sums kept{};
  const std::vector<Group> groups = gather(at, at);
  if (groups.size() == 1) {
    const Group& only = groups.front();
    const int64_t count = std::min((need - 1) / std::max<int64_t>(only.each.weight, 1) + 1, only.count);
    least_ = row_.nth(key_in(only.rank), count - 1);
    kept = {only.each.weight * count, only.each.moment * count};
  } else {
    std::vector<Item> items;
    items.reserve(groups.size());
    for (const Group& group : groups) items.push_back({~group.rank, group.each.weight});
    least_ = ~reach_among(items, need);
    for (const Group& group : groups)
      if (group.rank >= least_) kept += group.each;
  }
  std::fill(sums_.begin() + at, sums_.end(), Sums{});
  sums_[static_cast<size_t>(at)] = kept;
  return least_;
}

double Buckets::reach(double mean, int64_t need) const {
  // How near and how far the tokens of a bucket may be: both grow from the mean's bucket on, and to its other side.
  const int middle = std::min(static_cast<int>(-mean * static_cast<double>(steps_)), last_);
  const auto far = [&](int b) { return std::max(std::fabs(edge(b) - mean), std::fabs(edge(b + 1) - mean)); };
  const auto near = [&](int b) {
    return b == middle ? 0.0 : std::min(std::fabs(edge(b) - mean), std::fabs(edge(b + 1) - mean));
  };
  const auto bound = [&](auto distance) {
    int left = middle - 1, right = middle, b = middle;
    for (int64_t rest = need; rest > 0 && (left >= 0 || right <= last_); rest -= sums_[static_cast<size_t>(b)].weight)
      b = right > last_ || (left >= 0 && distance(left) < distance(right)) ? left-- : right++;
    return distance(b);
  };
  const double least = bound(near), most = bound(far);  // the distance sought lies between
  std::vector<Item> items;
  const auto look = [&](int b, int step) {
    for (; b >= 0 && b <= last_ && far(b) < least; b += step) need -= sums_[static_cast<size_t>(b)].weight;
    const int from = b;
    while (b >= 0 && b <= last_ && near(b) <= most) b += step;
    if (b == from) return;
    for (const Group& group : gather(std::min(from, b - step), std::max(from, b - step))) {
      const double distance = scale_.distance(group.logit(), mean);
      items.push_back({0, group.each.weight * group.count});
      __builtin_memcpy(&items.back().key, &distance, 8);  // bits of positive numbers are in their order
    }
  };
  look(middle - 1, -1);
  look(middle, 1);
  const uint64_t last = reach_among(items, need);
  double distance;
  __builtin_memcpy(&distance, &last, 8);
  return distance;
}

Sums Buckets::weigh_one(float logit) const {
  Sums sums{1, 0};
  if (unit_ == Unit::Weight) weigh(scale_, &logit, 1, &sums);
  return sums;
}

// The tokens of buckets first to last, each for itself unless there are very many of one logit and no others.
std::vector<Buckets::Group> Buckets::gather(int first, int last) const {
  const int32_t bottom = key_of(-FLT_MAX), top = key_of(row_.top());
  const auto start = [&](int b) { return first_key(bottom, top, [&](int32_t key) { return of(key) <= b; }); };
  const int32_t low = std::max(start(last), key_in(least_)), high = first == 0 ? top : start(first - 1) - 1;
  int64_t weight = 0;
  for (int b = first; b <= last; ++b) weight += sums_[static_cast<size_t>(b)].weight;
  const Sums heaviest = weigh_one(value_of(high));
  if (static_cast<double>(weight) > kMany * static_cast<double>(std::max<int64_t>(heaviest.weight, 1))) {
    const auto [least, most] = row_.extent(low, high);
    const Sums each = weigh_one(value_of(least));
    if (least == most) return {{row_.nth(least, 0), each, weight / std::max<int64_t>(each.weight, 1)}};
  }
  const std::vector<int> ids = row_.within(std::max(least_, rank_of(low, 0xffffffffu)), high);
  std::vector<Group> groups(ids.size());
  std::vector<float> logits(ids.size());
  std::vector<Sums> sums(ids.size(), Sums{1, 0});
  for (size_t i = 0; i < ids.size(); ++i) logits[i] = row_.x()[ids[i]];
  if (unit_ == Unit::Weight) weigh(scale_, logits.data(), static_cast<int>(logits.size()), sums.data());
  for (size_t i = 0; i < ids.size(); ++i) groups[i] = {row_.rank(ids[i]), sums[i], 1};
  return groups;
}

}  // namespace paceline
