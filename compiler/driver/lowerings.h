// The ways to put an attention to cuDNN (lowerings.def). None is right for every attention, cuDNN
// version and GPU; which one serves is found by asking cuDNN, the one that is predicted to take
// least (passes/cost.h) first.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/rewrite/rewrites.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::driver {

struct Lowered {
  plan::Program program;
  double predicted_ms = 0;
  std::vector<std::string> parts{};  // of the mask (passes/partition.h), for people
};

struct Lowering {
  std::string_view name;
  std::string_view what;  // for people, on one line
  // Simplified, verified IR -> program. Errors: `unsupported`, with the place and what would work,
  // when this way has no form for the attention; others stand whatever the way is.
  Result<Lowered> (*forward)(const ir::Attention& attention, passes::Rewrites made);
  Result<Lowered> (*backward)(const ir::Attention& attention, passes::Rewrites made);
  bool slow = false;   // several times as slow as a fused kernel: never taken unasked
  bool other = false;  // another form of what composite does: that there is none is said when asked

  // A forward without o among the outputs makes one in the workspace, since kernels write it.
  Result<Lowered> lower(const ir::Attention& attention, plan::Direction direction,
                        passes::Rewrites made) const;
};

inline constexpr std::string_view kAnyLowering = "auto";
inline constexpr std::string_view kAnyOrSlow = "auto or slow";

// In order: those that are not slow for kAnyLowering, all for kAnyOrSlow, the one of this name, or
// none. They live as long as the program.
std::span<const Lowering> lowerings(std::string_view name = kAnyLowering);

// What `lowerings` takes: "auto", then each name.
std::vector<std::string> lowering_names();

namespace ways {
#define ATTN_LOWERING(name, what)                                              \
  Result<Lowered> name(const ir::Attention& attention, passes::Rewrites made); \
  Result<Lowered> name##_backward(const ir::Attention& attention, passes::Rewrites made);
#define ATTN_OTHER_LOWERING ATTN_LOWERING
#define ATTN_SLOW_LOWERING ATTN_LOWERING
#include "compiler/driver/lowerings.def"
#undef ATTN_OTHER_LOWERING
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

// A way that has a form for the attention.
struct Candidate {
  const Lowering* way = nullptr;
  Lowered lowered;
};

// Of the ways that `name`, which must be known, stands for, the one that is predicted to take least
// first, slow ones last; `refused` gets the others. Rewrites are those of `made` alone. Errors:
// error_of all when there is none; the first error that is not `unsupported`.
Result<std::vector<Candidate>> candidates(const ir::Attention& attention, std::string_view name,
                                          plan::Direction direction, std::vector<Refusal>& refused,
                                          passes::Rewrites made = {});

// In the order of lowerings.def.
std::vector<Refusal> in_order(std::vector<Refusal> refusals);

// Whether another candidate may serve after this error: a refusal, a failure of cuDNN's, or a
// worker that died or took too long. Other errors would meet every candidate.
bool may_try_another(const Error& error);

// The first value that `attempt(const Candidate&)`, which returns a Result, has; `refused` gets the
// candidates before it. Errors: error_of all when there is none, or of those up to the first error
// after which no other may be tried.
template <typename Attempt>
auto first_taken(const std::vector<Candidate>& candidates, std::vector<Refusal>& refused,
                 const Attempt& attempt) -> decltype(attempt(candidates.front())) {
  for (const Candidate& candidate : candidates) {
    auto value = attempt(candidate);
    if (value.ok()) return value;
    refused.push_back({std::string(candidate.way->name), value.error()});
    if (!may_try_another(value.error())) break;
  }
  return error_of(in_order(refused));
}

}  // namespace attn::driver
