// The work budget of searches, and how far their results can be trusted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compiler/target/deadline.h"

namespace attn::masks {

enum class Exactness : std::uint8_t {
  exact,
  bound,   // more may be hidden, where tensors, params or comparisons of reals decide
  stopped  // more may be hidden, because the search reached its limit
};

// Looks at a deadline now and then. Not thread-safe.
class Watch {
 public:
  // The deadline, which may be null, outlives this.
  explicit Watch(const target::Deadline* deadline) : deadline_(deadline) {}

  // Whether it was over at the last look. So many operations were done since the last call.
  bool is_over(std::int64_t operations) {
    if (deadline_ == nullptr || is_over_) return is_over_;
    done_ += operations;
    if (done_ < kBetweenLooks) return false;
    done_ = 0;
    return is_over_ = deadline_->is_over();
  }

 private:
  static constexpr std::int64_t kBetweenLooks = std::int64_t{1} << 18;  // some milliseconds

  const target::Deadline* deadline_;
  std::int64_t done_ = kBetweenLooks;  // the first call looks
  bool is_over_ = false;
};

// Operations that the searches of one analysis may still evaluate, about 10 ns each. Counted, not
// timed, so that the same attention gives the same result on every machine. A search that runs out
// gives a conservative answer: wider bounds, masks kept, parts not found. A deadline ends it, too:
// that of a build which is then given up, so no plan depends on it. Not thread-safe.
class Effort {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  explicit Effort(std::int64_t operations = kMost) : left_(operations) {}
  // The deadline, which may be null, outlives this.
  explicit Effort(const target::Deadline* deadline, std::int64_t operations = kMost)
      : left_(operations), watch_(deadline) {}

  // Consumes `operations`; false if fewer were left, or the deadline is over.
  bool spend(std::int64_t operations) {
    left_ = operations <= left_ && !watch_.is_over(operations) ? left_ - operations : -1;
    return left_ >= 0;
  }
  std::int64_t left() const { return std::max<std::int64_t>(left_, 0); }
  // Whether a search was stopped.
  bool is_spent() const { return left_ < 0; }

 private:
  std::int64_t left_;
  Watch watch_{nullptr};
};

}  // namespace attn::masks
