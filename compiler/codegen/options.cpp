#include "compiler/codegen/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace attn::codegen {
namespace {

constexpr const char* kElementWise[] = {"--std=c++17", "--fmad=false"};
// The assembler reports registers and spills (nvrtc/assembly.h).
constexpr const char* kGeneral[] = {"--std=c++17", "--fmad=true", "--ftz=true", "--prec-div=false",
                                    "--ptxas-options=-v"};

}  // namespace

std::span<const char* const> options_of(KernelKind kind) {
  if (kind == KernelKind::general) return kGeneral;
  return kElementWise;
}

std::string options_text() {
  return fmt::format("{}; {}\n", fmt::join(kElementWise, " "), fmt::join(kGeneral, " "));
}

}  // namespace attn::codegen
