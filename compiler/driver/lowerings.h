// The ways to put an attention to cuDNN (lowerings.def). None is right for every attention, cuDNN
// version and GPU; which one serves is found by asking cuDNN, in order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::driver {

struct Lowering {
  std::string_view name;
  std::string_view what;  // for people, on one line
  // Simplified, verified IR -> program. Errors: `unsupported`, with the place and what would work,
  // when this way has no form for the attention; others stand whatever the way is.
  Result<plan::Program> (*forward)(const ir::Attention& attention);
  Result<plan::Program> (*backward)(const ir::Attention& attention);
  bool slow = false;  // several times as slow as a fused kernel: never taken unasked

  Result<plan::Program> lower(const ir::Attention& attention, plan::Direction direction) const {
    return direction == plan::Direction::forward ? forward(attention) : backward(attention);
  }
};

inline constexpr std::string_view kAnyLowering = "auto";
inline constexpr std::string_view kAnyOrSlow = "auto or slow";

// In order: those that are not slow for kAnyLowering, all for kAnyOrSlow, the one of this name, or
// none. They live as long as the program.
std::span<const Lowering> lowerings(std::string_view name = kAnyLowering);

// What `lowerings` takes: "auto", then each name.
std::vector<std::string> lowering_names();

namespace ways {
#define ATTN_LOWERING(name, what)                             \
  Result<plan::Program> name(const ir::Attention& attention); \
  Result<plan::Program> name##_backward(const ir::Attention& attention);
#define ATTN_SLOW_LOWERING ATTN_LOWERING
#include "compiler/driver/lowerings.def"
#undef ATTN_SLOW_LOWERING
#undef ATTN_LOWERING
}  // namespace ways

// A way that did not become the plan, and why.
struct Refusal {
  std::string lowering;
  Error error;
};

// One error of all refusals (one or more): the first's, followed by a note for each of the others
// that says something else, and their notes; `unsupported` unless one failed otherwise. Its payload
// has all of them, when there are several:
//   "lowerings": [{"lowering": "composite", "message": .., "notes": [..], "detail": {payload}}]
Error error_of(const std::vector<Refusal>& refusals);

// The first value that `attempt(const Lowering&)`, which returns a Result, has for a way that
// `name` stands for; `refused` gets those before it. Errors: error_of all when each is
// `unsupported`, or of those up to the first that failed otherwise. The name must be known.
template <typename Attempt>
auto first_taken(std::string_view name, std::vector<Refusal>& refused, const Attempt& attempt)
    -> decltype(attempt(std::declval<const Lowering&>())) {
  for (const Lowering& lowering : lowerings(name)) {
    auto value = attempt(lowering);
    if (value.ok()) return value;
    refused.push_back({std::string(lowering.name), value.error()});
    if (value.error().code != ErrorCode::unsupported) break;
  }
  return error_of(refused);
}

}  // namespace attn::driver
