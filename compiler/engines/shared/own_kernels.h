// What attnc's own kernels compute on a GPU, for those who refuse something to say what does.
#pragma once

#include <string>
#include <string_view>

#include "compiler/target/context.h"

namespace attn::engines {

// Whether there are some for the GPU.
bool are_own_kernels_for(const target::Context& context);

// "`--engine native` computes both directions"; `otherwise` where there are none.
std::string own_kernels_note(const target::Context& context, std::string otherwise);
// Whether a note advises these kernels: it misleads where they refuse too.
bool is_own_kernels_note(std::string_view note);

}  // namespace attn::engines
