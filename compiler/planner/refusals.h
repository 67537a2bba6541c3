// Why strategies do not serve, and the one error that says so for all of them.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::planner {

// A strategy that did not become the plan, and why.
struct Refusal {
  std::string lowering;
  Error error;
};

// One error for all refusals (one or more): the first's, followed by a note for each of the others
// that says something else, and their notes; `unsupported` unless one failed otherwise. Its payload
// has all of them, when there are several:
//   "strategies": [{"strategy": "composite", "message": .., "notes": [..], "detail": {payload}}]
Error error_of(const std::vector<Refusal>& refusals);

// Refusals in the order of the engines.
std::vector<Refusal> in_order(std::vector<Refusal> refusals);

// Whether another strategy may serve after this error: a refusal, an error of cuDNN's or NVRTC's,
// or a worker that died or ran out of time. Any other error holds for every strategy.
bool may_try_another(const Error& error);

// Strategies of a search that do not serve.
struct Refused {
  std::vector<Refusal> told;  // no alternatives, unless asked for by name
  std::vector<Refusal>
      all;  // the same with all alternatives, in the order in which they were asked
  std::vector<Refusal> left_out;  // engines that could, but the other half of a pair is of another
};

// error_of what is told, and of `failed`. Attnc's own kernels compute most, so what they lack comes
// first, or is a note, and what is said of a score quotes it.
Error error_of(const Refused& refused, std::vector<Refusal> failed, const ir::Attention& attention,
               const target::Context& context);

}  // namespace attn::planner
