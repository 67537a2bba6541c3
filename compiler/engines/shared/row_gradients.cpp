#include "compiler/engines/shared/row_gradients.h"

#include <fmt/format.h>

#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/rows.h"

namespace attn::engines {
namespace {

using codegen::Field;

constexpr const char* kFile = "softmax_gradients.cuh";

std::string class_of(const char* name, const ir::Attention& attention) {
  return fmt::format("{}<{}>", name, codegen::float_class(attention.dtype));
}

const char* slopes_in_words(const ir::Attention& attention) {
  return attention.is_sigmoid() ? "weight * (1 - weight) * do v^T" : "do v^T, where it is seen";
}

void add_whole(const BoundOutputs& whole, const ir::Attention& attention,
               std::vector<Field>& fields, codegen::KernelText& kernel) {
  fields.emplace_back("whole.o", kernel.read(whole.o, attention.dtype));
  fields.emplace_back("whole.d_o", kernel.read(whole.d_o, attention.dtype));
  fields.emplace_back("whole.Dv", attention.dims[ir::Dim::Dv]);
  fields.emplace_back("whole.stride", whole.stride);
}

void add_statistics(const std::string& lse, const std::string& deltas, std::vector<Field>& fields,
                    codegen::KernelText& kernel) {
  if (!lse.empty()) {
    fields.emplace_back("lse_of_rows", kernel.write(lse, DType::f32, "lse, packed"));
  }
  if (!deltas.empty()) {
    fields.emplace_back("deltas", kernel.write(deltas, DType::f32, "the sum of do * o"));
  }
}

}  // namespace

plan::DeriveStep row_gradients(const ir::Attention& attention, const RowGradientTensors& tensors) {
  codegen::KernelText kernel;
  const std::int64_t lanes = lanes_of(tensors.columns);
  std::vector<Field> fields = row_fields(attention, lanes, kernel, tensors.tile);
  const auto add = [&](const char* field, std::string value) {
    fields.emplace_back(field, std::move(value));
  };
  add("scores", kernel.read(tensors.scores, DType::f32));
  if (!tensors.sinks.empty()) add("sinks", kernel.read(tensors.sinks, DType::f32));
  for (Field& field : kept_fields(attention, tensors.kept, kernel)) fields.push_back(field);
  add("cotangents", kernel.read(tensors.cotangents, DType::f32));
  const bool pointwise = attention.is_pointwise();
  if (!pointwise) add("lse", kernel.read("lse", DType::f32));
  if (attention.reads_d_lse) add("d_lse", kernel.read(kLseCotangent, DType::f32));
  if (tensors.whole) add_whole(*tensors.whole, attention, fields, kernel);
  fields.emplace_back("columns", tensors.columns);
  add("modified",
      kernel.write(tensors.modified, DType::f32,
                   pointwise ? slopes_in_words(attention) : "weight * (do v^T - delta)"));
  if (!tensors.weights.empty()) {
    add("weights", kernel.write(tensors.weights, attention.dtype,
                                pointwise ? weights_in_words(attention) : "exp(score - lse)"));
  }
  add_statistics(tensors.lse, tensors.deltas, fields, kernel);
  if (pointwise) {
    kernel.run(kPointwiseFile, pointwise_class("PointwiseGradients", attention), fields);
  } else {
    kernel.run(kFile, class_of("SoftmaxGradients", attention), fields);
  }
  plan::DeriveStep step = std::move(kernel).finish(false);
  if (tensors.tile && tensors.tile->again) step.amends = tensors.tile->all_rows() * lanes;
  return step;
}

plan::DeriveStep row_deltas(const ir::Attention& attention, const RowDeltaTensors& tensors) {
  codegen::KernelText kernel;
  std::vector<Field> fields = row_fields(attention, 1, kernel);
  add_whole(tensors.whole, attention, fields, kernel);
  fields.emplace_back("lse", kernel.read("lse", DType::f32));
  if (attention.reads_d_lse) fields.emplace_back("d_lse", kernel.read(kLseCotangent, DType::f32));
  add_statistics(tensors.lse, tensors.deltas, fields, kernel);
  kernel.run(kFile, class_of("RowDeltas", attention), fields);
  return std::move(kernel).finish(false);
}

plan::DeriveStep narrow_row_deltas(const ir::Attention& attention, const std::string& lse,
                                   const std::string& deltas) {
  codegen::KernelText kernel;
  std::vector<Field> fields = row_fields(attention, 1, kernel);
  const DType stored = attention.dtype_of("o"), narrow = attention.dtype_of("do");
  fields.emplace_back("o", kernel.read("o", stored));
  fields.emplace_back("d_o", kernel.read("do", narrow));
  fields.emplace_back("Dv", attention.dims[ir::Dim::Dv]);
  const Dims4 strides = stored_strides(attention, "o");
  const char* const names[] = {"batch", "head", "row", "column"};
  for (std::size_t axis = 0; axis < 4; ++axis) fields.emplace_back(names[axis], strides[axis]);
  if (is_fp8(stored)) fields.emplace_back("descale_o", kernel.read("descale_o", DType::f32));
  fields.emplace_back("descale_do", kernel.read("descale_do", DType::f32));
  fields.emplace_back("lse", kernel.read("lse", DType::f32));
  add_statistics(lse, deltas, fields, kernel);
  kernel.run("narrow_deltas.cuh",
             fmt::format("NarrowDeltas<{}, {}>", codegen::float_class(stored),
                         codegen::float_class(narrow)),
             fields);
  return std::move(kernel).finish(false);
}

}  // namespace attn::engines
