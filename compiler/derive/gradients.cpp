#include "compiler/derive/gradients.h"

#include <fmt/format.h>

#include "compiler/derive/emit.h"
#include "compiler/derive/expression_writer.h"
#include "compiler/derive/scores.h"

namespace attn::derive {

using ir::Dim;

plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors) {
  const ir::Attention& attention = derivatives.attention;
  const ir::Dims& d = attention.dims;
  ExpressionWriter writer(attention);
  begin_scores(writer, attention, tensors.columns, tensors.columns);
  const std::string local = writer.value(derivatives.score);
  const std::string scale = writer.value(attention.scale);
  const std::string body = fmt::format(
      "  if (i >= {0}LL) return;\n"
      "  const double cotangent = i % {1} < {2} ? modified[i] : 0;\n"
      "  if (cotangent == 0) {{\n    gradients[i] = 0;\n    return;\n  }}\n"
      "{3}  gradients[i] = attn_narrow((float)(cotangent * {4} * {5}));\n",
      d[Dim::B] * d[Dim::Hq] * d[Dim::Sq] * tensors.columns, tensors.columns, d[Dim::Skv],
      writer.statements(2), local, scale);
  KernelInputs inputs = inputs_of(attention, {attention.scale, derivatives.score});
  inputs.operands.insert(inputs.operands.begin(), {plan::TensorOperand{tensors.products},
                                                   plan::TensorOperand{tensors.modified}});
  std::vector<std::string> parameters = {"unsigned short* gradients", "const float* products",
                                         "const float* modified"};
  parameters.insert(parameters.end(), inputs.parameters.begin(), inputs.parameters.end());
  plan::DeriveStep step;
  step.outputs = {tensors.gradients};
  step.expressions = {
      fmt::format("dS' * ({}) * scale", ir::to_source(attention, derivatives.score))};
  step.inputs = std::move(inputs.operands);
  step.source = include_text() + narrowing_text(attention.dtype) +
                kernel_text(plan::kDeriveKernel, parameters, body);
  return step;
}

}  // namespace attn::derive
