// write_kernels FOLDER: writes the random cases' kernels as C++ for the host (kernels.cpp) and what
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
    default: return "unsigned char";  // the random attentions also have booleans
  }
}

std::string type_of(const ir::Attention& attention, const plan::OperandSource& input) {
  const auto* tensor = std::get_if<plan::TensorOperand>(&input);
  return tensor == nullptr ? type_of(DType::f32)
                           : type_of(attention.find_tensor(tensor->name)->dtype) + "*";
}

std::string call(const char* kernel, const std::vector<std::string>& types) {
  std::string arguments;
  for (std::size_t i = 0; i < types.size(); ++i) {
    arguments += fmt::format("{}*({}*)a[{}]", i == 0 ? "" : ", ", types[i], i);
  }
  return fmt::format("{}({});", kernel, arguments);
}

// The kernels of a check, and functions that call them.
std::string check(unsigned number, const CheckCase& what) {
  std::vector<std::string> types = {"unsigned long long*"};
  for (const plan::OperandSource& input : what.check->inputs) {
    types.push_back(type_of(what.attention, input));
  }
  return fmt::format(
      "#define attn_check_quickly quickly_{0}\n#define attn_check_exactly exactly_{0}\n"
      "namespace check_{0} {{\n{1}\nvoid quickly(void* const* a) {{ {2} }}\n"
      "void exactly(void* const* a) {{ {3} }}\n}}\n"
      "#undef attn_check_quickly\n#undef attn_check_exactly\n",
      number, what.check->source, call("attn_check_quickly", types),
      call("attn_check_exactly", types));
}

// The kernel, and a function that calls it with arguments as cuLaunchKernel takes them.
std::string kernel(unsigned number, const Case& what) {
  const KernelSource source = emit_kernel(what.attention, what.outputs);
  std::vector<std::string> types;
  for (const auto& output : what.outputs) types.push_back(type_of(output.dtype) + "*");
  for (const plan::OperandSource& input : source.inputs) {
    types.push_back(type_of(what.attention, input));
  }
  return fmt::format(
      "#define attn_derive attn_derive_{0}\nnamespace case_{0} {{\n{1}\n"
      "void run(void* const* a) {{ {2} }}\n}}\n#undef attn_derive\n",
      number, source.text, call("attn_derive", types));
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
  std::string checks;
  for (unsigned i = 0; i < kCheckSeeds; ++i) {
    const CheckCase what = random_check(i);
    if (what.check) file << check(i, what);
    checks += what.check ? fmt::format("{{check_{0}::quickly, check_{0}::exactly}}, ", i) : "{}, ";
  }
  file << "namespace prelude {\n#include \"" << attn::derive::kPreludeName << "\"\n}\n"
       << "double half_on_host(unsigned short bits) { return prelude::attn_f16(bits); }\n"
       << "double bfloat_on_host(unsigned short bits) { return prelude::attn_bf16(bits); }\n"
       << "extern void (*const kKernels[])(void* const*);\n"
       << "void (*const kKernels[])(void* const*) = {" << table << "};\n"
       << "extern const CheckKernels kChecks[];\nconst CheckKernels kChecks[] = {" << checks
       << "};\n";
  return file.good() ? 0 : 1;
}
