#include "compiler/engines/shared/own_kernels.h"

#include <utility>

#include "compiler/target/capabilities.h"

namespace attn::engines {

using target::Capability;

bool are_own_kernels_for(const target::Context& context) {
  return target::can(Capability::warp_group_products, context) ||
         target::can(Capability::warp_products, context);
}

bool is_own_kernels_note(std::string_view note) { return note.starts_with("`--engine native`"); }

std::string own_kernels_note(const target::Context& context, std::string otherwise) {
  return are_own_kernels_for(context) ? "`--engine native` computes both directions" : otherwise;
}

}  // namespace attn::engines
