#include "compiler/rewrite/pass.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"

namespace attn::rewrite {
namespace {

constexpr Pass kPasses[] = {
#define ATTN_PASS(name, what) {#name, what, pass::name},
#include "compiler/rewrite/passes.def"
};

}  // namespace

// If Skv is 0, removes what acts on scores and weights, of which there are none, so that no later
// pass sees an axis without elements. Keeps the sink, lengths and tensors. Returns any other
// attention unchanged.
ir::Attention pass::without_keys(const ir::Attention& attention, const target::Context&,
                                 masks::Effort&) {
  ir::Attention result = attention;
  if (attention.dims.get(ir::Dim::Skv) != 0) return result;
  result.score = result.dag.leaf(ir::Op::score_);
  result.masks.clear();
  result.sums.clear();
  result.prologue_q.reset();
  result.prologue_k.reset();
  result.dropout.reset();
  return result;
}

std::span<const Pass> all_passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  const auto* found = std::ranges::find(kPasses, name, &Pass::name);
  return found == std::end(kPasses) ? nullptr : found;
}

void finish_pass(std::string_view name, const ir::Attention& after, double milliseconds,
                 const target::Context& context) {
  const Status verified = ir::verify(after);
  ATTN_CHECK(verified.ok(), fmt::format("after {}: {}", name, verified.error().message));
  if (context.observer != nullptr) (*context.observer)({name, milliseconds, after});
}

ir::Attention run_pass(std::string_view name, const ir::Attention& attention,
                       const target::Context& context, masks::Effort& effort) {
  const Pass* pass = find_pass(name);
  ATTN_CHECK(pass != nullptr, "a pass of passes.def");
  if (context.deadline && context.deadline->is_over()) return attention;  // for nothing
  return run_pass(name, context, [&] { return pass->run(attention, context, effort); });
}

ir::Attention kernel_form(const ir::Attention& attention, const target::Context& context,
                          masks::Effort& effort) {
  const target::Rewrites& made = context.rewrites;
  ir::Attention form = attention;
  if (made.bounding_band) form = run_pass("bounding_band", form, context, effort);
  if (made.redundant) form = run_pass("redundant", form, context, effort);
  if (made.reals) form = run_pass("reals", form, context, effort);
  return form;
}

}  // namespace attn::rewrite
