// write_programs FOLDER: writes the kernels of the cases' programs as C++ for the host
// (programs.cpp).
#include <fmt/format.h>

#include <fstream>

#include "tests/support/host_kernels.h"
#include "tests/unit/compiler/programs/cases.h"

int main(int, char** arguments) {
  using namespace attn::programs::testing;
  const std::string folder = arguments[1];
  std::ofstream file(folder + "/programs.cpp");
  file << attn::testing::host_includes();
  std::string table;
  std::size_t number = 0;
  for (std::size_t i = 0; i < kAll; ++i) {
    for (const attn::plan::Program& program : programs_of(attention_of(i))) {
      for (const auto* step : attn::plan::steps_of<attn::plan::DeriveStep>(program)) {
        file << attn::testing::host_kernel(number, step->source);
        table += fmt::format("kernel_{}::run, ", number++);
      }
    }
  }
  file << "extern const HostKernel kHostKernels[];\nconst HostKernel kHostKernels[] = {" << table
       << "};\n";
  return file.good() ? 0 : 1;
}
