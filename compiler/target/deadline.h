// The time that one build may take, and which phases took it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace attn::target {

// A build is what one strategy takes: its bound, its lowering, or the kernels of all programs that
// are tried for it. Phases look at it where they can end: between strategies, programs, kernels,
// tiles and rewrites, and searches (masks/effort.h) meanwhile. What is found when it is
// over is less than there may be, and only for the build that is then given up. Not thread-safe.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  // A limit of 0 is none. Of a build within another: `outer` is that one's, which ends it, too.
  explicit Deadline(std::chrono::nanoseconds limit, Now now = Clock::now,
                    std::shared_ptr<const Deadline> outer = nullptr);

  // Gives the next build the whole time again.
  void restart();
  bool is_over() const { return left().count() <= 0; }
  std::chrono::nanoseconds left() const;  // the most that there is, without a limit

  // Errors: `worker` when it is over. The message says how long each phase took, the longest first.
  Status check() const;

  // While it lives, time counts as that of a phase, or of the innermost of several.
  class Phase {
   public:
    // `deadline`, which may be null, outlives this; so does the name.
    Phase(Deadline* deadline, std::string_view name);
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    Deadline* deadline_;
    std::string_view before_;
  };

 private:
  using Spent = std::pair<std::string_view, std::chrono::nanoseconds>;

  // Ends the phase, and returns its name.
  std::string_view begin(std::string_view phase);
  std::vector<Spent> all_spent() const;

  std::chrono::nanoseconds limit_;
  Now now_;
  std::shared_ptr<const Deadline> outer_;
  Clock::time_point start_, since_;  // of the build, of the phase
  std::string_view phase_ = "other";
  std::vector<Spent> spent_;
};

}  // namespace attn::target
