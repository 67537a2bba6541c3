// write_kernels FOLDER: writes the random cases' kernels as C++ for the host, kernels.cpp, and what
// they include.
#include <fmt/format.h>

#include <fstream>

#include "compiler/derive/emit.h"
#include "compiler/derive/prelude.h"
#include "tests/unit/compiler/derive/random_cases.h"

namespace attn::derive::testing {
namespace {

std::string type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float";
    case DType::i32: return "int";
    default: return "unsigned char";  // the random attentions have booleans besides
  }
}

// The kernel, and a function that calls it with arguments as cuLaunchKernel takes them.
std::string kernel(unsigned number, const Case& what) {
  const KernelSource source = emit_kernel(what.attention, what.outputs);
  std::string arguments;
  std::size_t count = 0;
  const auto add = [&](const std::string& type) {
    arguments += fmt::format("{}*({}*)a[{}]", count == 0 ? "" : ", ", type, count);
    ++count;
  };
  for (const auto& output : what.outputs) add(type_of(output.dtype) + "*");
  for (const plan::OperandSource& input : source.inputs) {
    const auto* tensor = std::get_if<plan::TensorOperand>(&input);
    add(tensor != nullptr ? type_of(what.attention.find_tensor(tensor->name)->dtype) + "*"
                          : type_of(DType::f32));
  }
  return fmt::format(
      "#define attn_derive attn_derive_{0}\nnamespace case_{0} {{\n{1}\n"
      "void run(void* const* a) {{ attn_derive_{0}({2}); }}\n}}\n#undef attn_derive\n",
      number, source.text, arguments);
}

}  // namespace
}  // namespace attn::derive::testing

int main(int, char** arguments) {
  using namespace attn::derive::testing;
  const std::string folder = arguments[1];
  std::ofstream(folder + "/" + attn::derive::kPreludeName) << attn::derive::kPrelude;
  std::ofstream file(folder + "/kernels.cpp");
  file << "#include \"tests/unit/compiler/derive/cuda_on_host.h\"\n";
  std::string table;
  for (unsigned i = 0; i < kCases; ++i) {
    file << kernel(i, random_case(i));
    table += fmt::format("case_{}::run, ", i);
  }
  file << "namespace prelude {\n#include \"" << attn::derive::kPreludeName << "\"\n}\n"
       << "double half_on_host(unsigned short bits) { return prelude::attn_f16(bits); }\n"
       << "double bfloat_on_host(unsigned short bits) { return prelude::attn_bf16(bits); }\n"
       << "extern void (*const kKernels[])(void* const*);\n"
       << "void (*const kKernels[])(void* const*) = {" << table << "};\n";
  return file.good() ? 0 : 1;
}
