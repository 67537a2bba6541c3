#include "compiler/passes/rewrite/kernel_form.h"

#include "compiler/passes/rewrite/bounding_band.h"
#include "compiler/passes/rewrite/ranged.h"
#include "compiler/passes/rewrite/reals.h"

namespace attn::passes {

ir::Attention kernel_form(const ir::Attention& attention, const planning::Context& context,
                          Effort& effort) {
  const planning::Rewrites& made = context.rewrites;
  ir::Attention form = attention;
  if (made.bounding_band) form = with_bounding_band(form, context, effort);
  if (made.redundant) form = without_redundant(form, effort);
  if (made.reals) form = with_real_indices(form);
  return form;
}

}  // namespace attn::passes
