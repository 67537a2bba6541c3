// write_programs FOLDER: writes the kernels of the cases' programs as C++ for the host
// (programs.cpp) and what they include.
#include <fmt/format.h>

#include <fstream>

#include "compiler/derive/prelude.h"
#include "tests/unit/compiler/programs/cases.h"

namespace attn::programs::testing {
namespace {

// The kernel in a separate namespace, and a function that calls it.
std::string kernel(std::size_t number, const plan::DeriveStep& step) {
  return fmt::format(
      "#define attn_derive attn_derive_{0}\nnamespace kernel_{0} {{\n{1}\n"
      "void run(void* const* a) {{ call_with(attn_derive, a); }}\n}}\n#undef attn_derive\n",
      number, step.source);
}

}  // namespace
}  // namespace attn::programs::testing

int main(int, char** arguments) {
  using namespace attn::programs::testing;
  const std::string folder = arguments[1];
  std::ofstream(folder + "/" + attn::derive::kPreludeName) << attn::derive::kPrelude;
  std::ofstream file(folder + "/programs.cpp");
  file << "#include \"tests/unit/compiler/programs/warps_on_host.h\"\n"
          "#define asm ATTN_ASM_ON_HOST\n";
  std::string table;
  std::size_t number = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    for (const attn::plan::Program& program : programs_of(attention_of(i))) {
      for (const auto* step : attn::plan::steps_of<attn::plan::DeriveStep>(program)) {
        file << kernel(number, *step);
        table += fmt::format("kernel_{}::run, ", number++);
      }
    }
  }
  file << "extern const HostKernel kHostKernels[];\nconst HostKernel kHostKernels[] = {" << table
       << "};\n";
  return file.good() ? 0 : 1;
}
