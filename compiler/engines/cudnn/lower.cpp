#include "compiler/engines/cudnn/lower.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <set>
#include <vector>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/cudnn/statistics.h"
#include "compiler/engines/shared/checks.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/interface.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/no_keys.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/quantized.h"
#include "compiler/engines/shared/staging.h"
#include "compiler/engines/shared/unsupported.h"
#include "compiler/masks/mask_analysis.h"
#include "compiler/target/capabilities.h"
#include "runtime/plan/step_tensors.h"

namespace attn::engines {
namespace {

using codegen::Field;
using ir::Dim;
using target::Capability;

// Outputs that no lowering here can express. (What some cuDNN versions compute wrong:
// runtime/cudnn/known_bad.)
Status check_statistics(const ir::Attention& attention, const target::Context& context) {
  if (can(Capability::statistics_beside_sink, context)) return {};
  if (!attention.sink || !attention.wants_more_than_lse()) return {};
  return unsupported(attention.statistics_pos,
                     "beside a sink, cuDNN's engines output no statistic but lse",
                     "`lse`, which includes the sink, is supported; --allow-unfused supports all "
                     "statistics");
}

// The engine for a single row splits the keys and adds partial results in any order.
Status check_determinism(const ir::Attention& attention, const target::Context& context) {
  if (can(Capability::deterministic_lse_of_one_row, context)) return {};
  if (!attention.deterministic || attention.dims[Dim::Sq] > 1 || !attention.wants_lse) return {};
  return unsupported(attention.pos, "with a single row, the last bit of lse varies between runs",
                     "o does not vary: remove `deterministic`, or lse, which training needs");
}

// cuDNN's own rule, reported when the operation is created.
Status check_pages(const ir::Attention& attention, const target::Context& context) {
  if (can(Capability::pages_of_any_size, context)) return {};
  for (const char* name : {"k", "v"}) {
    const ir::Layout& layout = attention.layouts.find(name)->second;
    if (layout.kind != ir::LayoutKind::paged) continue;
    if (std::has_single_bit(static_cast<std::uint64_t>(layout.page))) continue;
    return unsupported(attention.pos,
                       fmt::format("cuDNN requires a page size that is a power of two; pages of "
                                   "`{}` have {} rows",
                                   name, layout.page));
  }
  return {};
}

}  // namespace

Result<plan::Program> lower(const ir::Attention& attention, const target::Context& context,
                            Core core) {
  ATTN_RETURN_IF_ERROR(check_forward(attention));
  if (attention.dims[Dim::Skv] == 0 && attention.quantize) {
    return unsupported(attention.quantize->pos, "8-bit attention needs keys, and Skv is 0");
  }
  if (attention.dims[Dim::Skv] == 0) return no_keys(attention);
  ATTN_RETURN_IF_ERROR(check_statistics(attention, context));
  ATTN_RETURN_IF_ERROR(check_pages(attention, context));
  ATTN_RETURN_IF_ERROR(check_determinism(attention, context));
  const masks::Analyzed mask = masks::analyzed(attention, context);
  ATTN_RETURN_IF_ERROR(check_quantized(attention, mask->form(), context));
  ATTN_ASSIGN(plan::Step step, core(attention, mask->form()));
  const std::set<std::string> used = plan::names_used({&step, 1});
  plan::Program program;
  Controls made = controls(attention, used);
  program.tensors = bound_tensors(attention, used, made);
  program.internals = std::move(made.internals);
  for (plan::TensorInfo& amax : unwanted_amax(attention)) {
    program.internals.push_back(std::move(amax));
  }
  program.params = bound_params(attention, used);
  ATTN_ASSIGN(Staging staged, staging(attention, {"q", "k", "v"}, {"o"}));
  for (plan::TensorInfo& copy : staged.internals) program.internals.push_back(std::move(copy));
  for (plan::DeriveStep& derive : made.steps) program.steps.emplace_back(std::move(derive));
  for (plan::DeriveStep& derive : staged.before) program.steps.emplace_back(std::move(derive));
  program.steps.emplace_back(std::move(step));
  for (plan::DeriveStep& derive : staged.after) program.steps.emplace_back(std::move(derive));
  Statistics rows = statistics(attention);
  for (plan::TensorInfo& row : rows.internals) program.internals.push_back(std::move(row));
  for (plan::DeriveStep& derive : rows.steps) program.steps.emplace_back(std::move(derive));
  if (std::optional<plan::DeriveStep> amends = keyless(attention)) {
    program.steps.emplace_back(std::move(*amends));
  }
  ATTN_RETURN_IF_ERROR(check_program(attention, program));
  return program;
}

namespace {

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
