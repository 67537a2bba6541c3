#include "compiler/derive/gradients.h"

#include <fmt/format.h>

#include "compiler/derive/emit.h"
#include "compiler/derive/expression_writer.h"
#include "compiler/derive/scores.h"

namespace attn::derive {

using ir::Dim;

namespace {

constexpr const char* kMade = R"({statements}  gradients[i] = {value};
)";

// A score's number in its tile differs from that among all scores.
constexpr const char* kMadeOfTile = R"(  const long long n = i, local = i / {columns};
  {{
    const long long whole = {row};
    const long long i = whole * {columns} + n % {columns};
{statements}    gradients[n] = {value};
  }}
)";

}  // namespace

plan::DeriveStep score_gradients_step(const gradient::Derivatives& derivatives,
                                      const GradientTensors& tensors) {
  const ir::Attention& attention = derivatives.attention;
  const ir::Dims& d = attention.dims;
  ExpressionWriter writer(attention);
  const std::optional<RowTile>& tile = tensors.tile;
  begin_scores(writer, attention, tensors.columns, tensors.columns, tile ? "local" : "");
  const std::string local = writer.value(derivatives.score);
  const std::string scale = writer.value(attention.scale);
  const std::int64_t rows = tile ? tile->all_rows() : d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  const std::string value = fmt::format("attn_narrow((float)(cotangent * {} * {}))", local, scale);
  const std::string body =
      fmt::format(
          "  if (i >= {0}LL) return;\n"
          "  const double cotangent = i % {1} < {2} ? modified[i] : 0;\n"
          "  if (cotangent == 0) {{\n    gradients[i] = 0;\n    return;\n  }}\n",
          rows * tensors.columns, tensors.columns, d[Dim::Skv]) +
      fmt::format(fmt::runtime(tile ? kMadeOfTile : kMade), fmt::arg("columns", tensors.columns),
                  fmt::arg("row", tile ? tile->row_text("local") : ""),
                  fmt::arg("statements", writer.statements(tile ? 4 : 2)),
                  fmt::arg("value", value));
  KernelInputs inputs = inputs_of(attention, {attention.scale, derivatives.score});
  inputs.operands.insert(inputs.operands.begin(), {plan::TensorOperand{tensors.products},
                                                   plan::TensorOperand{tensors.modified}});
  std::vector<std::string> parameters = {"unsigned short* gradients", "const float* products",
                                         "const float* modified"};
  parameters.insert(parameters.end(), inputs.parameters.begin(), inputs.parameters.end());
  if (tile) {
    inputs.operands.emplace_back(tile->first);
    parameters.emplace_back(kFirstParameter);
  }
  plan::DeriveStep step;
  if (tile && tile->again) step.amends = rows * tensors.columns;
  step.outputs = {tensors.gradients};
  step.expressions = {
      fmt::format("dS' * ({}) * scale", ir::to_source(attention, derivatives.score))};
  step.inputs = std::move(inputs.operands);
  step.source = include_text() + narrowing_text(attention.dtype) +
                kernel_text(plan::kDeriveKernel, parameters, body);
  return step;
}

}  // namespace attn::derive
