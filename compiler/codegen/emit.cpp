#include "compiler/codegen/emit.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "compiler/codegen/expression_writer.h"

namespace attn::codegen {
namespace {

using ir::ExprId;
using rewrite::DerivedTensor;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

// C++ text: the element that holds the value. For f16 and bf16, which hold conditions, its bits.
std::string element(DType dtype, const std::string& value) {
  if (dtype == DType::bf16) return fmt::format("{} ? 0x3f80 : 0", value);
  if (dtype == DType::f16) return fmt::format("{} ? 0x3c00 : 0", value);
  return fmt::format("({}){}", codegen::element_type(dtype), value);
}

}  // namespace

plan::DeriveStep emit_step(const ir::Attention& attention,
                           const std::vector<DerivedTensor>& outputs) {
  std::vector<ExprId> expressions;
  ExpressionWriter writer(attention);
  codegen::KernelText kernel;
  for (const DerivedTensor& output : outputs) {
    expressions.push_back(output.expression);
    writer.begin(output.axes, output.dims);
    const std::string value = element(output.dtype, writer.value(output.expression));
    kernel.make(output.name, output.dtype, product(output.dims),
                ir::to_source(attention, output.expression),
                with_statements(writer, fmt::format("out[i] = {};", value)));
  }
  read_inputs(kernel, inputs_of(attention, expressions));
  return std::move(kernel).finish(outputs.front().once);
}

std::string with_statements(const ExpressionWriter& writer, const std::string& last) {
  return (writer.statements(4) + "    " + last).substr(4);
}

void read_inputs(codegen::KernelText& kernel, const KernelInputs& inputs) {
  for (std::size_t i = 0; i < inputs.operands.size(); ++i) {
    kernel.read(inputs.operands[i], inputs.parameters[i]);
  }
}

}  // namespace attn::codegen
