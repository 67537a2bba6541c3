// The CUDA C++ files of attn/, which generated kernels include: embedded in the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/support/embedded.h"

namespace attn::codegen {

// All of them; NVRTC receives each as "attn/NAME".
std::span<const support::EmbeddedFile> sources();

// A line that includes a file ("softmax.cuh"), with a hash of its text, of those that it includes,
// and of the options of compilation: a kernel's text determines all that is compiled, and so does a
// plan's signature.
std::string include_text(std::string_view name);

}  // namespace attn::codegen
