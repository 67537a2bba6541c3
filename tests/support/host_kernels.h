// Text that compiles kernels for the host. The folder compiler/device must be an include folder.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "compiler/codegen/sources.h"

namespace attn::testing {

// Whether the host can compile a file of compiler/device/attn as it is: hopper.cuh, and what
// includes it, has instructions of one GPU, and threads of a block wait for each other in
// key_sums.cuh (tests/host/gpu emulates both).
inline bool is_for_host(std::string_view name) {
  if (name == "hopper.cuh" || name == "key_sums.cuh") return false;
  const std::string_view text = support::text_of(codegen::sources(), name);
  return std::ranges::none_of(codegen::sources(), [&text](const auto& file) {
    const std::string include = fmt::format("#include \"attn/{}\"", file.name);
    return text.find(include) != text.npos && !is_for_host(file.name);
  });
}

// Whether a file has kernels, which the compiler translates wherever it is included.
inline bool has_kernels(std::string_view name) {
  return support::text_of(codegen::sources(), name).find("__global__") != std::string_view::npos;
}

// For the beginning of a file: what kernels include. With `gpu`, the folder tests/host/gpu must
// come before that of the kernels.
inline std::string host_includes(bool gpu = false) {
  std::string text =
      "#include \"tests/unit/compiler/programs/warps_on_host.h\"\n"
      "#define asm ATTN_ASM_ON_HOST\n";
  if (gpu) text += "#include \"tests/host/gpu/cuda.h\"\n";
  for (const auto& file : codegen::sources()) {
    if (has_kernels(file.name)) continue;
    if (gpu || is_for_host(file.name)) text += fmt::format("#include \"attn/{}\"\n", file.name);
  }
  return text;
}

// A step's kernel, and kernel_NUMBER::run, a HostKernel.
inline std::string host_kernel(std::size_t number, const std::string& source) {
  return fmt::format(
      "#define attn_derive attn_derive_{0}\nnamespace kernel_{0} {{\n{1}\n"
      "void run(void* const* a) {{ call_with(attn_derive, a); }}\n}}\n#undef attn_derive\n",
      number, source);
}

}  // namespace attn::testing
