// write_kernels FOLDER: writes the random cases' kernels as C++ for the host (kernels.cpp).
#include <fmt/format.h>

#include <fstream>

#include "compiler/codegen/emit.h"
#include "tests/support/host_kernels.h"
#include "tests/unit/compiler/codegen/random_cases.h"

namespace attn::codegen::testing {
namespace {

// The kernels of a check, and functions that call them.
std::string check(unsigned number, const CheckCase& what) {
  return fmt::format(
      "#define attn_check_quickly quickly_{0}\n#define attn_check_exactly exactly_{0}\n"
      "namespace check_{0} {{\n{1}\n"
      "void quickly(void* const* a) {{ call_with(attn_check_quickly, a); }}\n"
      "void exactly(void* const* a) {{ call_with(attn_check_exactly, a); }}\n}}\n"
      "#undef attn_check_quickly\n#undef attn_check_exactly\n",
      number, what.check->source);
}

}  // namespace
}  // namespace attn::codegen::testing

int main(int, char** arguments) {
  using namespace attn::codegen::testing;
  const std::string folder = arguments[1];
  std::ofstream file(folder + "/kernels.cpp");
  file << attn::testing::host_includes();
  std::string table;
  for (unsigned i = 0; i < kCases; ++i) {
    const Case what = random_case(i);
    file << attn::testing::host_kernel(
        i, attn::codegen::emit_step(what.attention, what.outputs).source);
    table += fmt::format("kernel_{}::run, ", i);
  }
  std::string checks;
  for (unsigned i = 0; i < kCheckSeeds; ++i) {
    const CheckCase what = random_check(i);
    if (what.check) file << check(i, what);
    checks += what.check ? fmt::format("{{check_{0}::quickly, check_{0}::exactly}}, ", i) : "{}, ";
  }
  file << "double half_on_host(unsigned short bits) { return attn_f16(bits); }\n"
       << "double bfloat_on_host(unsigned short bits) { return attn_bf16(bits); }\n"
       << "extern void (*const kKernels[])(void* const*);\n"
       << "void (*const kKernels[])(void* const*) = {" << table << "};\n"
       << "extern const CheckKernels kChecks[];\nconst CheckKernels kChecks[] = {" << checks
       << "};\n";
  return file.good() ? 0 : 1;
}
