#include "compiler/passes/kernel_form.h"

#include "compiler/passes/cover.h"
#include "compiler/passes/ranged.h"
#include "compiler/passes/reals.h"

namespace attn::passes {

ir::Attention kernel_form(const ir::Attention& attention, bool backward) {
  return with_real_indices(without_redundant(with_cover(attention, backward)));
}

}  // namespace attn::passes
