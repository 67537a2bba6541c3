// The CUDA C++ files of attn/, which generated kernels include: embedded in the program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "compiler/support/embedded.h"

namespace attn::codegen {

// What kernels are compiled with.
enum class KernelKind : std::uint8_t {
  element_wise,  // results are those of the operations as written: nothing is contracted to an FMA
  general,       // FMAs, quotients and roots within 2 units in the last place, no subnormal floats,
                 // and what only this architecture has (sm_90a)
};

// NVRTC's options, all but the architecture.
std::span<const char* const> options_of(KernelKind kind);

// The options of all kinds, one line.
std::string options_text();

// All of them; NVRTC receives each as "attn/NAME".
std::span<const support::EmbeddedFile> sources();

// The line that includes a file ("softmax.cuh"). It has a hash of the file, of the files that this
// includes, and of the options of compilation, so that a kernel's text, and with it a plan's
// signature, determines all that is compiled.
std::string include_text(std::string_view name);

}  // namespace attn::codegen
