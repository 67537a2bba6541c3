// How much work searches may do.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attn::passes {

// Operations that the searches of one analysis may still evaluate, about 10 ns each. They are
// counted, not timed, so that the same attention gives the same answer on every machine. A search
// that may not go on answers with what it knows: bounds that contain what is shown, masks that are
// kept, parts that are not found. Not thread-safe.
class Effort {
 public:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;

  explicit Effort(std::int64_t operations = kMost) : left_(operations) {}

  // Takes them; false when fewer were left.
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
