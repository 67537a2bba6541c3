#include "compiler/derive/emit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <numeric>

#include "compiler/derive/expression_writer.h"
#include "compiler/derive/prelude.h"

namespace attn::derive {
namespace {

using ir::ExprId;
using passes::DerivedTensor;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// C++ text: the element that holds the value. For f16 and bf16, which hold conditions, its bits.
std::string element(DType dtype, const std::string& value) {
  if (dtype == DType::bf16) return fmt::format("{} ? 0x3f80 : 0", value);
  if (dtype == DType::f16) return fmt::format("{} ? 0x3c00 : 0", value);
  return fmt::format("({}){}", element_type(dtype), value);
}

// Text for the threads that compute one output.
std::string block(ExpressionWriter& writer, const DerivedTensor& output) {
  writer.begin(output.axes, output.dims);
  const std::string value = writer.value(output.expression);
  return fmt::format("  if (i < {0}) {{\n{1}    o_{2}[i] = {3};\n    return;\n  }}\n  i -= {0};\n",
                     product(output.dims), writer.statements(4), output.name,
                     element(output.dtype, value));
}

}  // namespace

KernelSource emit_kernel(const ir::Attention& attention,
                         const std::vector<DerivedTensor>& outputs) {
  std::vector<ExprId> expressions;
  std::vector<std::string> parameters;
  for (const DerivedTensor& output : outputs) {
    expressions.push_back(output.expression);
    parameters.push_back(fmt::format("{}* o_{}", element_type(output.dtype), output.name));
  }
  KernelInputs inputs = inputs_of(attention, expressions);
  parameters.insert(parameters.end(), inputs.parameters.begin(), inputs.parameters.end());
  ExpressionWriter writer(attention);
  std::string body;
  for (const DerivedTensor& output : outputs) body += block(writer, output);
  return {include_text() + kernel_text(plan::kDeriveKernel, parameters, body),
          std::move(inputs.operands)};
}

std::string kernel_text(const char* name, const std::vector<std::string>& parameters,
                        const std::string& body) {
  return fmt::format(
      "extern \"C\" __global__ void {}({}) {{\n"
      "  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n{}}}\n",
      name, fmt::join(parameters, ", "), body);
}

std::string include_text() { return fmt::format("#include \"{}\"\n", kPreludeName); }

std::string widening_text(DType dtype) {
  const char* value =
      dtype == DType::bf16
          ? "  return __uint_as_float((unsigned)bits << 16);\n"
          : "  float x;\n  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(bits));\n"
            "  return x;\n";
  return fmt::format("static __device__ float attn_widen(unsigned short bits) {{\n{}}}\n", value);
}

std::string narrowing_text(DType dtype) {
  return fmt::format(
      "static __device__ unsigned short attn_narrow(float x) {{\n"
      "  unsigned short bits;\n"
      "  asm(\"cvt.rn.{}.f32 %0, %1;\" : \"=h\"(bits) : \"f\"(x));\n"
      "  return bits;\n}}\n",
      to_string(dtype));
}

}  // namespace attn::derive
