#include "adjust.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace paceline {
namespace {

// How often each token was seen; all zero between calls, so that clearing costs what counting did.
class Counter {
 public:
  explicit Counter(int vocab) {
    if (counts_.size() < static_cast<size_t>(vocab)) counts_.resize(static_cast<size_t>(vocab));
    vocab_ = vocab;
  }
  ~Counter() {
    for (int32_t token : seen_) counts_[static_cast<size_t>(token)] = 0;
    seen_.clear();
  }
  void add(Span tokens) {
    for (int i = 0; i < tokens.count; ++i) {
      const int32_t token = tokens.data[i];
      if (token >= 0 && token < vocab_ && counts_[static_cast<size_t>(token)]++ == 0) seen_.push_back(token);
    }
  }
  const std::vector<int32_t>& seen() const { return seen_; }
  int32_t count(int32_t token) const { return counts_[static_cast<size_t>(token)]; }

 private:
  static thread_local std::vector<int32_t> counts_, seen_;
  int vocab_;
};

thread_local std::vector<int32_t> Counter::counts_, Counter::seen_;

// Whether the output, the path included, ends with these tokens.
bool follows(const Adjustment& a, const int32_t* before, int count) {
  if (count > a.output.count + a.path.count) return false;
  for (int back = 1; back <= count; ++back) {
    const int32_t token =
        back <= a.path.count ? a.path.data[a.path.count - back] : a.output.data[a.output.count + a.path.count - back];
    if (token != before[count - back]) return false;
  }
  return true;
}

}  // namespace

void adjust(const float* logits, int vocab, const Adjustment& a, float* out) {
  std::memcpy(out, logits, static_cast<size_t>(vocab) * sizeof(float));
  const auto is_token = [vocab](int32_t id) { return id >= 0 && id < vocab; };
  if (a.repetition != 1.0f) {
    Counter counter(vocab);
    for (Span part : {a.prompt, a.output, a.path}) counter.add(part);
    for (int32_t id : counter.seen()) out[id] = out[id] > 0 ? out[id] / a.repetition : out[id] * a.repetition;
  }
  if (a.presence != 0.0f || a.frequency != 0.0f) {
    Counter counter(vocab);
    for (Span part : {a.output, a.path}) counter.add(part);
    for (int32_t id : counter.seen()) {
      out[id] -= a.frequency * static_cast<float>(counter.count(id));
      out[id] -= a.presence;
    }
  }
  for (int i = 0; i < a.bias_ids.count; ++i)
    if (is_token(a.bias_ids.data[i])) out[a.bias_ids.data[i]] += a.bias[i];
  if (a.has_allowed) {
    std::vector<float> kept(static_cast<size_t>(a.allowed.count));
    for (int i = 0; i < a.allowed.count; ++i)
      if (is_token(a.allowed.data[i])) kept[static_cast<size_t>(i)] = out[a.allowed.data[i]];
    std::fill(out, out + vocab, -INFINITY);
    for (int i = 0; i < a.allowed.count; ++i)
      if (is_token(a.allowed.data[i])) out[a.allowed.data[i]] = kept[static_cast<size_t>(i)];
  }
  for (int word = 0; word + 1 < a.ban_starts.count; ++word) {
    const int start = a.ban_starts.data[word], last = a.ban_starts.data[word + 1] - 1;
    if (is_token(a.banned.data[last]) && follows(a, a.banned.data + start, last - start))
      out[a.banned.data[last]] = -INFINITY;
  }
  for (int i = 0; i < a.ends.count; ++i)
    if (is_token(a.ends.data[i])) out[a.ends.data[i]] = -INFINITY;
}

}  // namespace paceline
