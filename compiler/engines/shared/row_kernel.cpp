#include "compiler/engines/shared/row_kernel.h"

#include <fmt/format.h>

#include "compiler/engines/shared/rows.h"

namespace attn::engines {

plan::DeriveStep row_kernel(const ir::Attention& attention, const RowTensors& tensors) {
  codegen::KernelText kernel;
  std::vector<codegen::Field> fields = row_fields(attention, lanes_of(tensors.columns), kernel);
  const auto add = [&](const char* field, std::string value) {
    fields.emplace_back(field, std::move(value));
  };
  const auto write = [&](const char* name, bool wanted, const char* meaning) {
    if (wanted) add(name, kernel.write(name, DType::f32, meaning));
  };
  add("scores", kernel.read(tensors.scores, DType::f32));
  if (!tensors.sinks.empty()) add("sinks", kernel.read(tensors.sinks, DType::f32));
  for (auto& field : kept_fields(attention, tensors.kept, kernel)) fields.push_back(field);
  fields.emplace_back("columns", tensors.columns);
  add("weights", kernel.write(tensors.weights, attention.dtype,
                              fmt::format("{} of the scores", to_string(attention.normalize))));
  write("lse", attention.wants_lse, "log of the sum of exp(score)");
  write("max", attention.wants_max, "the largest score");
  write("sum_exp", attention.wants_sum_exp, "sum of exp(score - max)");
  write("max_with_sink", attention.wants_max_with_sink, "the larger of max and the sink");
  write("sum_exp_with_sink", attention.wants_sum_exp_with_sink,
        "sum of exp(score - max_with_sink), including the sink");
  write("lse_without_sink", attention.wants_lse_without_sink,
        "log of the sum of exp(score), without the sink");
  const bool sigmoid = attention.is_sigmoid();
  kernel.run(
      sigmoid ? "sigmoid.cuh" : "softmax.cuh",
      fmt::format("{}<{}>", sigmoid ? "Sigmoid" : "Softmax", codegen::float_class(attention.dtype)),
      fields);
  return std::move(kernel).finish(false);
}

}  // namespace attn::engines
