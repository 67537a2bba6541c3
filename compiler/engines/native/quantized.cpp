#include "compiler/engines/native/quantized.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "compiler/engines/native/checks.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/native/padded_rows.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/engines/shared/unsupported.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

constexpr const char* kValues = "native.values";
constexpr std::int64_t kThreads = 256, kTile = 128;  // as in attn/transposed_values.cuh

std::int64_t pitch(const ir::Attention& attention) {
  return ceil_div(attention.dims[Dim::Skv], kCell) * kCell;
}

std::vector<std::int64_t> dims_of_values(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  return {d[Dim::B], d[Dim::Hkv], d[Dim::Dv], pitch(attention)};
}

bool is_packed(const ir::Attention& attention) {
  return layout_of(attention, "v").kind == ir::LayoutKind::thd;
}

// Outputs of the program that the kernel sets to 0.
std::vector<std::string> amax_outputs(const ir::Attention& attention) {
  std::vector<std::string> names;
  for (const ir::Output& output : ir::kOutputs) {
    if (ir::is_amax(output.name) && attention.*output.wanted) names.emplace_back(output.name);
  }
  return names;
}

// Strides that the kernel takes at run time, as in PoolStrides (attn/forward_tensors.cuh).
std::vector<plan::StrideArgument> strides_of_values(const ir::Attention& attention) {
  if (!layout_of(attention, "v").bound_strides) return {};
  std::vector<plan::StrideArgument> strides = {{"v", 0}, {"v", 1}, {"v", 2}};
  if (page_of(attention, "v") > 0) strides.push_back({page_table_name(attention, "v"), 0});
  return strides;
}

std::string parameter(const plan::StrideArgument& stride) {
  return fmt::format("{}_stride_{}", stride.tensor == "v" ? "v" : "table", stride.axis);
}

std::string bound_object(const ir::Attention& attention) {
  std::vector<std::string> names;
  for (const plan::StrideArgument& stride : strides_of_values(attention)) {
    names.push_back(parameter(stride));
  }
  return fmt::format(", {{{}}}", fmt::join(names, ", "));
}

// Bytes that rows may be read by.
std::int64_t vector_of_values(const ir::Attention& attention) {
  if (attention.dims[Dim::Dv] % 16 == 0 && check_layout(attention, "v").ok()) return 16;
  return moves_in_vectors(stored_dims(attention, "v"), stored_strides(attention, "v")) ? 8 : 1;
}

std::int64_t blocks_of_values(const ir::Attention& attention) {
  const std::vector<std::int64_t> dims = dims_of_values(attention);
  return ceil_div(dims[3], kTile) * ceil_div(dims[2], kTile) * dims[0] * dims[1];
}

std::string constants_text(const ir::Attention& attention) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "v");
  const std::int64_t page = page_of(attention, "v");
  std::string text = "struct Values {\n";
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"kBatches", d[Dim::B]},
           {"kHeads", d[Dim::Hkv]},
           {"kKeys", d[Dim::Skv]},
           {"kStored", d[Dim::Dv]},
           {"kPitch", pitch(attention)},
           {"kVector", vector_of_values(attention)},
           {"kPage", page},
           {"kPages", page == 0 ? 0 : page_table_dims(attention, "v")[2]}}) {
    text += fmt::format("  static constexpr int {} = {};\n", name, value);
  }
  text += fmt::format("  static constexpr bool kPacked = {};\n", is_packed(attention));
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, std::int64_t>>{{"kBatchStride", batch},
                                                                   {"kHeadStride", head},
                                                                   {"kRowStride", row},
                                                                   {"kColumnStride", column}}) {
    text += fmt::format("  static constexpr long long {} = {};\n", name, value);
  }
  return text + "};\n";
}

}  // namespace

Status check_quantized(const ir::Attention& attention) {
  if (attention.is_mxfp8()) {
    return unsupported(attention.quantize->pos, "attnc's kernels have no scales of blocks",
                       "`quantize per_tensor;` works");
  }
  return check_readable(attention);
}

plan::TensorMapArgument map_of_values(const ir::Attention& attention, const Tile& tile) {
  const std::vector<std::int64_t> dims = dims_of_values(attention);
  const std::int64_t row = dims[3], head = dims[2] * row;
  return {.tensor = {kValues},
          .dims = {dims[3], dims[2], dims[1], dims[0]},
          .strides = {row, head, dims[1] * head},
          .box = {tile.width_panel(), tile.width, 1, 1},
          .swizzle = tile.width_panel()};
}

std::string transposed_values_text(const ir::Attention& attention, const std::string& parameters,
                                   const std::string& object) {
  std::string further, zeros;
  if (page_of(attention, "v") > 0) further += ", const int* table";
  if (is_packed(attention)) further += ", const int* starts";
  const bool is_bound = layout_of(attention, "v").bound_strides;
  for (const plan::StrideArgument& stride : strides_of_values(attention)) {
    further += fmt::format(", long long {}", parameter(stride));
  }
  const PaddedRowsText padded = padded_rows_text(attention, blocks_of_values(attention));
  further += padded.parameters;
  for (const std::string& name : amax_outputs(attention)) {
    further += fmt::format(", unsigned* {}", name);
    zeros += fmt::format("  if (attn_thread() == 0) *{} = 0;\n", name);
  }
  return constants_text(attention) +
         fmt::format(
             "extern \"C\" __global__ void __launch_bounds__({}) {}(\n"
             "    const unsigned char* v, unsigned char* values{}{}) {{\n  {}\n"
             "  kernels::begin_next_launch();\n{}{}"
             "  const kernels::TransposedValues<Values{}> transposed{{v, values, {}, {}{}}};\n"
             "  transposed.run(expressions.keys(transposed.batch()));\n}}\n",
             kThreads, kValuesKernel, further, parameters, object, zeros, padded.statements,
             is_bound ? ", true" : "", page_of(attention, "v") > 0 ? "table" : "nullptr",
             is_packed(attention) ? "starts" : "nullptr", is_bound ? bound_object(attention) : "");
}

void add_transposed_values(const ir::Attention& attention,
                           const std::vector<plan::KernelArgument>& inputs, plan::Program& program,
                           plan::KernelStep& step) {
  using Tensor = plan::TensorOperand;
  const std::vector<std::int64_t> dims = dims_of_values(attention);
  program.internals.push_back(plan::internal_tensor(kValues, attention.dtype, dims));
  step.outputs.emplace_back(kValues);
  std::vector<plan::KernelArgument> arguments = {Tensor{"v"}, Tensor{kValues}};
  if (page_of(attention, "v") > 0) arguments.emplace_back(Tensor{page_table_name(attention, "v")});
  if (is_packed(attention)) arguments.emplace_back(Tensor{kColumnStarts});
  std::ranges::copy(strides_of_values(attention), std::back_inserter(arguments));
  const std::int64_t further = add_padded_rows(attention, kThreads, program, step, arguments);
  for (const std::string& name : amax_outputs(attention)) arguments.emplace_back(Tensor{name});
  std::ranges::copy(inputs, std::back_inserter(arguments));
  step.launches.push_back({.kernel = kValuesKernel,
                           .grid = {blocks_of_values(attention) + further, 1, 1},
                           .block = {kThreads, 1, 1},
                           .arguments = std::move(arguments)});
}

std::string zeroed_magnitudes_text(const ir::Attention& attention) {
  const std::vector<std::string> names = amax_outputs(attention);
  if (names.empty()) return "";
  std::string zeros;
  for (const std::string& name : names) zeros += fmt::format("  *{} = 0;\n", name);
  return fmt::format("extern \"C\" __global__ void {}(unsigned* {}) {{\n{}}}\n", kZeroKernel,
                     fmt::join(names, ", unsigned* "), zeros);
}

void add_zeroed_magnitudes(const ir::Attention& attention, plan::KernelStep& step) {
  const std::vector<std::string> names = amax_outputs(attention);
  if (names.empty()) return;
  plan::Launch zeroing{.kernel = kZeroKernel, .grid = {1, 1, 1}, .block = {1, 1, 1}};
  for (const std::string& name : names) zeroing.arguments.emplace_back(plan::TensorOperand{name});
  step.launches.push_back(std::move(zeroing));
}

double bytes_of_transposing(const ir::Attention& attention) {
  double elements = 1;
  for (const std::int64_t dim : dims_of_values(attention)) elements *= static_cast<double>(dim);
  return 2 * elements + bytes_of_padding(attention);
}

}  // namespace attn::engines::native
