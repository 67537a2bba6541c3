#include "compiler/rewrite/kernel_form.h"

#include "compiler/rewrite/pass.h"

namespace attn::rewrite {

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
