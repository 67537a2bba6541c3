#include "compiler/engines/shared/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"

namespace attn::engines {

using codegen::Field;
using ir::Dim;

std::int64_t lanes_of(std::int64_t columns) { return columns >= 32 ? 32 : 8; }

std::vector<Field> row_fields(const ir::Attention& attention, std::int64_t lanes,
                              codegen::KernelText& kernel,
                              const std::optional<codegen::RowTile>& tile) {
  const ir::Dims& d = attention.dims;
  const std::int64_t rows = tile ? tile->all_rows() : d[Dim::B] * d[Dim::Hq] * d[Dim::Sq];
  std::vector<Field> fields = {{"rows", rows},
                               {"lanes", lanes},
                               {"Sq", d[Dim::Sq]},
                               {"Hq", d[Dim::Hq]},
                               {"Skv", d[Dim::Skv]}};
  const auto read = [&](const char* field, const std::string& tensor, bool wanted) {
    if (wanted) fields.emplace_back(field, kernel.read(tensor, DType::i32));
  };
  read("lengths_q", std::string(ir::kLengthsQ), has_row_lengths(attention));
  read("lengths_kv", std::string(ir::kLengthsKv), has_column_lengths(attention));
  read("row_starts", kRowStarts,
       !attention.is_pointwise() && !addressed_by(attention, "lse").empty());
  if (!tile) return fields;
  fields.emplace_back("first", kernel.read(tile->first, DType::i64));
  fields.emplace_back("tile_rows", tile->rows);
  fields.emplace_back("group_rows", tile->group_rows);
  return fields;
}

std::vector<Field> kept_fields(const ir::Attention& attention, const std::string& kept,
                               codegen::KernelText& kernel) {
  if (kept.empty()) return {};
  return {{"kept", kernel.read(kept, DType::i32)},
          {"keep_scale", fmt::format("{}", 1 / (1 - attention.dropout->probability))}};
}

namespace {

// The largest divisor from `least` to `most`, if possible a multiple of 8; 0 if there is none.
std::int64_t divisor(std::int64_t rows, std::int64_t least, std::int64_t most) {
  for (const std::int64_t step : {std::int64_t{8}, std::int64_t{1}}) {
    for (std::int64_t d = most / step * step; d >= least && d > 0; d -= step) {
      if (rows % d == 0) return d;
    }
  }
  return 0;
}

}  // namespace

std::vector<RowTurns> in_turns(std::int64_t rows, std::int64_t most) {
  most = std::max<std::int64_t>(most, 1);
  if (const std::int64_t same = divisor(rows, (most + 1) / 2, most); same > 0) {
    return {{0, same, rows / same}};
  }
  if (most > 16) most -= most % 8;
  const std::int64_t turns = rows / most;
  return {{0, most, turns}, {turns * most, rows - turns * most, 1}};
}

std::string pointwise_class(std::string_view name, const ir::Attention& attention) {
  return fmt::format("{}<{}, {}>", name, codegen::float_class(attention.dtype),
                     attention.is_sigmoid() ? "kernels::SigmoidOf" : "kernels::ItselfOf");
}

const char* weights_in_words(const ir::Attention& attention) {
  if (attention.is_linear()) return "the scores, 0 where hidden";
  return attention.is_sigmoid() ? "sigmoid of the scores" : "softmax of the scores";
}

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
  add("weights", kernel.write(tensors.weights, attention.dtype, weights_in_words(attention)));
  write("lse", attention.wants_lse, "log of the sum of exp(score)");
  write("max", attention.wants_max, "the largest score");
  write("sum_exp", attention.wants_sum_exp, "sum of exp(score - max)");
  write("max_with_sink", attention.wants_max_with_sink, "the larger of max and the sink");
  write("sum_exp_with_sink", attention.wants_sum_exp_with_sink,
        "sum of exp(score - max_with_sink), including the sink");
  write("lse_without_sink", attention.wants_lse_without_sink,
        "log of the sum of exp(score), without the sink");
  if (attention.is_pointwise()) {
    kernel.run(kPointwiseFile, pointwise_class("Pointwise", attention), fields);
  } else {
    kernel.run("softmax.cuh", fmt::format("Softmax<{}>", codegen::float_class(attention.dtype)),
               fields);
  }
  return std::move(kernel).finish(false);
}

}  // namespace attn::engines
