#include "compiler/passes/rewrite/kernel_form.h"

#include "compiler/passes/rewrite/bounding_band.h"
#include "compiler/passes/rewrite/ranged.h"
#include "compiler/passes/rewrite/reals.h"

namespace attn::passes {

ir::Attention kernel_form(const ir::Attention& attention, bool backward, Rewrites made,
                          Effort& effort) {
  ir::Attention form = attention;
  if (made.bounding_band) form = with_bounding_band(form, backward, effort);
  if (made.redundant) form = without_redundant(form, effort);
  if (made.reals) form = with_real_indices(form);
  return form;
}

}  // namespace attn::passes
