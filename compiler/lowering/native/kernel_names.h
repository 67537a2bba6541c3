// The names of kernels of attnc's own engine (kernel_names.def).
#pragma once

#include <string_view>

namespace attn::lowering::native {

#define ATTN_KERNEL(constant, name, what) inline constexpr const char* constant = name;
#include "compiler/lowering/native/kernel_names.def"

// What the kernel of this name does, in one line; empty for others.
std::string_view what_of_kernel(std::string_view name);

}  // namespace attn::lowering::native
