// What kernels are compiled with.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace attn::codegen {

enum class KernelKind : std::uint8_t {
  element_wise,  // results are those of the operations as written: nothing is contracted to an FMA
  general,       // FMAs, quotients and roots within 2 units in the last place, no subnormal floats,
                 // and what only this architecture has (sm_90a)
};

// NVRTC's options, all but the architecture.
std::span<const char* const> options_of(KernelKind kind);

// The options of all kinds, one line.
std::string options_text();

}  // namespace attn::codegen
