// The boxes that a search for faults still has to halve, and their order.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "compiler/masks/range.h"

namespace attn::masks {

// How far a value leaves its range within a box, at most; 0 if it does not.
struct Excess {
  std::int64_t below = 0, above = 0;
};

// Three orders alternate: last pushed (depth first, to find faults along a diagonal), largest
// excess above, and largest excess below (to find a fault in one corner of a whole of any size).
// Ties go to the last pushed. Not thread-safe.
class OpenBoxes {
 public:
  void push(const Box& box, const Excess& excess) {
    const std::size_t at = boxes_.size();
    boxes_.push_back(box);
    is_open_.push_back(true);
    last_.push_back(at);
    above_.emplace(excess.above, at);
    below_.emplace(excess.below, at);
  }

  // nullopt if all were taken.
  std::optional<Box> pop() {
    turn_ = (turn_ + 1) % 3;
    if (turn_ != 0) return take_beyond(turn_ == 1 ? above_ : below_, -1);
    while (!last_.empty()) {
      const std::size_t at = last_.back();
      last_.pop_back();
      if (is_open_[at]) return take(at);
    }
    return std::nullopt;
  }

  // The box with the largest excess on the side where `found` has one, if larger than that.
  std::optional<Box> pop_beyond(const Excess& found) {
    return found.above > 0 ? take_beyond(above_, found.above) : take_beyond(below_, found.below);
  }

 private:
  using Queue = std::priority_queue<std::pair<std::int64_t, std::size_t>>;

  std::optional<Box> take_beyond(Queue& queue, std::int64_t excess) {
    while (!queue.empty() && queue.top().first > excess) {
      const std::size_t at = queue.top().second;
      queue.pop();
      if (is_open_[at]) return take(at);
    }
    return std::nullopt;
  }

  Box take(std::size_t at) {
    is_open_[at] = false;
    return boxes_[at];
  }

  std::vector<Box> boxes_;
  std::vector<bool> is_open_;
  std::vector<std::size_t> last_;
  Queue above_, below_;
  int turn_ = 2;
};

}  // namespace attn::masks
