#include "compiler/passes/kernel_form.h"

#include "compiler/passes/cover.h"
#include "compiler/passes/ranged.h"
#include "compiler/passes/reals.h"

namespace attn::passes {

ir::Attention kernel_form(const ir::Attention& attention, bool backward, Rewrites made,
                          Effort& effort) {
  ir::Attention form = attention;
  if (made.cover) form = with_cover(form, backward, effort);
  if (made.redundant) form = without_redundant(form, effort);
  if (made.reals) form = with_real_indices(form);
  return form;
}

}  // namespace attn::passes
