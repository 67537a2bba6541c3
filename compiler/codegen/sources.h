// The CUDA C++ files of attn/, which generated kernels include: embedded in the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler/support/embedded.h"

namespace attn::codegen {

// All of them; NVRTC receives each as "attn/NAME".
std::span<const support::EmbeddedFile> sources();

// The line that includes a file ("softmax.cuh"). It has a hash of the file, of the files that this
// includes, and of the options of compilation, so that a kernel's text, and with it a plan's
// signature, determines all that is compiled.
std::string include_text(std::string_view name);

}  // namespace attn::codegen
