#include "compiler/engines/cudnn/keyless.h"

#include <vector>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/vectors.h"

namespace attn::engines {
namespace {

using codegen::Field;
using ir::Dim;

std::int64_t rows_of(const Dims4& dims) { return dims[0] * dims[1] * dims[2]; }

// The fields of kernels::EmptyRows for the rows of a tensor.
std::vector<Field> empty_rows(const ir::Attention& attention, const std::string& name,
                              const char* meaning, codegen::KernelText& kernel) {
  const Dims4 dims = logical_dims(attention, name), strides = stored_strides(attention, name);
  std::vector<Field> fields = {{"rows", rows_of(dims)},
                               {"H", dims[1]},
                               {"S", dims[2]},
                               {"D", dims[3]},
                               {"batch_stride", strides[0]},
                               {"head_stride", strides[1]},
                               {"row_stride", strides[2]},
                               {"stride", strides[3]}};
  const auto read = [&](const char* field, const std::string& tensor) {
    fields.emplace_back(field, kernel.read(tensor, DType::i32));
  };
  read("lengths_kv", std::string(ir::kLengthsKv));
  if (const std::string by = addressed_by(attention, name); !by.empty()) read("starts", by);
  const bool is_narrow = is_fp8(attention.dtype_of(name));
  fields.emplace_back(is_narrow ? "out_8" : "out",
                      kernel.write(name, attention.dtype_of(name), meaning, name));
  return fields;
}

}  // namespace

std::optional<plan::DeriveStep> keyless_backward(const ir::Attention& attention,
                                                 const std::vector<std::string>& gradients) {
  if (!has_lengths(attention) || gradients.empty()) return std::nullopt;
  codegen::KernelText kernel;
  kernel.include("empty_rows.cuh");
  std::int64_t threads = 0;
  for (const std::string& name : gradients) {
    std::vector<Field> fields =
        empty_rows(attention, name, "0 for batches without rows or keys", kernel);
    fields.emplace_back("lengths_q", kernel.read(std::string(ir::kLengthsQ), DType::i32));
    kernel.add(codegen::object_text("EmptyRows", name + "_rows", fields));
    kernel.add("  " + name + "_rows.run(i);\n  i -= " + name + "_rows.rows;\n");
    threads += rows_of(logical_dims(attention, name));
  }
  plan::DeriveStep step = std::move(kernel).finish(false);
  step.amends = threads;
  return step;
}

std::optional<plan::DeriveStep> keyless(const ir::Attention& attention) {
  if (!has_column_lengths(attention)) return std::nullopt;
  if (attention.dims[Dim::Sq] == 1 || attention.sink) return std::nullopt;
  constexpr const char* kMeaning = "value for batches without keys";
  codegen::KernelText kernel;
  std::vector<Field> fields = empty_rows(attention, "o", kMeaning, kernel);
  const Dims4 dims = logical_dims(attention, "o");
  const bool is_narrow = is_fp8(attention.dtype_of("o"));
  if (!is_narrow && moves_in_vectors(dims, stored_strides(attention, "o"))) {
    fields.emplace_back("in_vectors", "true");
  }
  const auto add_statistic = [&](const char* name, bool wanted) {
    if (wanted) fields.emplace_back(name, kernel.write(name, DType::f32, kMeaning, name));
  };
  add_statistic("lse", attention.wants_lse);
  add_statistic("max", attention.wants_max);
  add_statistic("sum_exp", attention.wants_sum_exp);
  kernel.run("empty_rows.cuh", "EmptyRows", fields);
  plan::DeriveStep step = std::move(kernel).finish(false);
  step.amends = rows_of(dims);
  return step;
}

}  // namespace attn::engines
