// The names of kernels of attnc's own engine (kernel_names.def).
#pragma once

#include <string>

#include "runtime/plan/program.h"

namespace attn::engines::native {

#define ATTN_KERNEL(constant, name, what) inline constexpr const char* constant = name;
#include "compiler/engines/native/kernel_names.def"

// What a launch of the step does, in one line; empty if it is not of this engine.
std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch);

}  // namespace attn::engines::native
