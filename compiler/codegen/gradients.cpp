#include "compiler/codegen/gradients.h"

#include <fmt/format.h>

#include "compiler/codegen/emit.h"
#include "compiler/codegen/expression_writer.h"
#include "compiler/codegen/scores.h"

namespace attn::codegen {

using ir::Dim;

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
  const std::string value =
      codegen::element_text(attention.dtype, fmt::format("cotangent * {} * {}", local, scale));
  codegen::KernelText kernel;
  kernel.make(
      tensors.gradients, attention.dtype, rows * tensors.columns,
      fmt::format("dS' * ({}) * scale", ir::to_source(attention, derivatives.score)),
      fmt::format("const double cotangent = i % {} < {} ? modified[i] : 0;\n"
                  "    if (cotangent == 0) {{\n      out[i] = 0;\n      return;\n    }}\n    ",
                  tensors.columns, d[Dim::Skv]) +
          of_score(writer, tile, tensors.columns, value));
  kernel.read(tensors.products, DType::f32, "products");
  kernel.read(tensors.modified, DType::f32, "modified");
  read_inputs(kernel, inputs_of(attention, {attention.scale, derivatives.score}));
  if (tile) kernel.read(tile->first, DType::i64, "first");
  plan::DeriveStep step = std::move(kernel).finish(false);
  if (tile && tile->again) step.amends = rows * tensors.columns;
  return step;
}

}  // namespace attn::codegen
