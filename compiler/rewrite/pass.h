// Runs rewrites of the IR. Every rewrite goes through run_pass(), which verifies the result and
// reports it to the context's observer.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "compiler/ir/attention.h"
#include "compiler/masks/effort.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::rewrite {

struct Pass {
  std::string_view name;
  std::string_view what;  // one line, to be printed
  ir::Attention (*run)(const ir::Attention& attention, const target::Context& context,
                       masks::Effort& effort);
};

// The functions of passes.def.
namespace pass {
#define ATTN_PASS(name, what)                                                        \
  ir::Attention name(const ir::Attention& attention, const target::Context& context, \
                     masks::Effort& effort);
#include "compiler/rewrite/passes.def"
}  // namespace pass

// Passes in the order of passes.def. They live as long as the program.
std::span<const Pass> all_passes();
const Pass* find_pass(std::string_view name);  // null: there is none

// What a rewrite made: the attention itself, or a member of a result that has more.
inline const ir::Attention* rewritten(const ir::Attention& attention) { return &attention; }
template <typename Made>
const ir::Attention* rewritten(const Made& made) requires requires {
  made.attention;
}
{ return &made.attention; }
template <typename Made>
const ir::Attention* rewritten(const std::optional<Made>& made) {
  return made ? rewritten(*made) : nullptr;
}
template <typename Made>
const ir::Attention* rewritten(const Result<Made>& made) {
  return made.ok() ? rewritten(*made) : nullptr;
}

// Ends the process (ATTN_CHECK) if the IR does not verify: that is a bug of the pass.
void finish_pass(std::string_view name, const ir::Attention& after, double milliseconds,
                 const target::Context& context);

// `rewrite()`, which returns an attention or a result with a member `attention`.
template <typename Rewrite>
auto run_pass(std::string_view name, const target::Context& context, const Rewrite& rewrite) {
  const target::Deadline::Phase phase(context.deadline.get(), "rewriting");
  const auto start = std::chrono::steady_clock::now();
  auto made = rewrite();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (const ir::Attention* after = rewritten(made)) {
    finish_pass(name, *after, took.count(), context);
  }
  return made;
}

// A pass of passes.def, which must exist.
ir::Attention run_pass(std::string_view name, const ir::Attention& attention,
                       const target::Context& context, masks::Effort& effort);
inline ir::Attention run_pass(std::string_view name, const ir::Attention& attention,
                              const target::Context& context = {}) {
  masks::Effort effort(context.deadline.get());
  return run_pass(name, attention, context, effort);
}

// The form of an attention that a fused kernel computes at the lowest cost: with the band that
// contains its masks added to them (ranged.h), masks that the others imply removed
// (ranged.h), and index arithmetic in reals (reals.h), each if `made` enables it. Unchanged if a
// dimension is open.
ir::Attention kernel_form(const ir::Attention& attention, const target::Context& context,
                          masks::Effort& effort);
inline ir::Attention kernel_form(const ir::Attention& attention, const target::Context& context) {
  masks::Effort effort(context.deadline.get());
  return kernel_form(attention, context, effort);
}

}  // namespace attn::rewrite
