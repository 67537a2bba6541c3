// The work budget of searches, and how far their results can be trusted.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attn::passes {

enum class Exactness : std::uint8_t {
  exact,
  bound,   // more may be hidden, where tensors, params or comparisons of reals decide
  stopped  // more may be hidden, because the search reached its limit
};

// Operations that the searches of one analysis may still evaluate, about 10 ns each. Counted, not
// timed, so that the same attention gives the same result on every machine. A search that runs out
// gives a conservative answer: wider bounds, masks kept, parts not found. Not thread-safe.
class Effort {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  explicit Effort(std::int64_t operations = kMost) : left_(operations) {}

  // Consumes `operations`; false if fewer were left.
  bool spend(std::int64_t operations) {
    left_ = operations <= left_ ? left_ - operations : -1;
    return left_ >= 0;
  }
  std::int64_t left() const { return std::max<std::int64_t>(left_, 0); }
  // Whether a search was stopped.
  bool is_spent() const { return left_ < 0; }

 private:
  std::int64_t left_;
};

}  // namespace attn::passes
