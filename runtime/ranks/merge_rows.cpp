#include "runtime/ranks/merge_rows.h"

#include <cstddef>

namespace attn::ranks {
namespace {

// Positions of ascending numbers in a set.
class Positions {
 public:
  explicit Positions(const Intervals& set) : set_(&set) {}

  // -1 if the set does not have it.
  std::int64_t of(std::int64_t number) {
    while (at_ < set_->size() && (*set_)[at_].end <= number) before_ += (*set_)[at_++].size();
    if (at_ == set_->size() || (*set_)[at_].begin > number) return -1;
    return before_ + number - (*set_)[at_].begin;
  }

 private:
  const Intervals* set_;
  std::size_t at_ = 0;
  std::int64_t before_ = 0;
};

}  // namespace

void MergeRows::add(const WrittenRows& written, const std::vector<const Intervals*>& sources) {
  Positions to(written.all);
  std::vector<Positions> from;
  for (const Intervals* source : sources) from.emplace_back(*source);
  for (const Interval& each : written.rows) {
    for (std::int64_t number = each.begin; number < each.end; ++number) {
      entries_.push_back(written.place);
      entries_.push_back(static_cast<std::int32_t>(to.of(number)));
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::int64_t row = from[i].of(number);
        if (row < 0) continue;
        entries_.push_back(kFirstPlace + static_cast<std::int32_t>(i));
        entries_.push_back(static_cast<std::int32_t>(row));
      }
      first_.push_back(static_cast<std::int32_t>(entries_.size() / 2));
      numbers_.push_back(static_cast<std::int32_t>(number));
    }
  }
}

bool MergeRows::shorten() {
  if (count() == 0) return false;
  const auto words = 2 * static_cast<std::size_t>(first_[1]);
  if (entries_.size() != words * static_cast<std::size_t>(count())) return false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool is_row = i % 2 == 1;
    const auto further = static_cast<std::int32_t>(is_row ? i / words : 0);
    if (first_[i / words] != static_cast<std::int32_t>(i / words * words / 2) ||
        entries_[i] != entries_[i % words] + further)
      return false;
  }
  entries_.resize(words);
  first_.resize(2);
  return true;
}

}  // namespace attn::ranks
