#include "compiler/passes/rewrite/kernel_form.h"

#include "compiler/passes/rewrite/pass.h"

namespace attn::passes {

ir::Attention kernel_form(const ir::Attention& attention, const planning::Context& context,
                          Effort& effort) {
  const planning::Rewrites& made = context.rewrites;
  ir::Attention form = attention;
  if (made.bounding_band) form = run_pass("bounding_band", form, context, effort);
  if (made.redundant) form = run_pass("redundant", form, context, effort);
  if (made.reals) form = run_pass("reals", form, context, effort);
  return form;
}

}  // namespace attn::passes
