#include "compiler/engines/native/maps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/operands.h"
#include "runtime/base/ceil_div.h"
#include "runtime/plan/internal_tensor.h"

namespace attn::engines::native {
namespace {

using ir::Dim;
using plan::TensorMapArgument;

constexpr std::int64_t kBatches = 0, kHeads = 1, kRows = 2;  // axes; batches, or pages

// A dimension of one element has no stride that matters.
// The first of `box` is a panel.
TensorMapArgument map(const std::string& name, std::int64_t element, std::vector<std::int64_t> dims,
                      std::vector<std::int64_t> strides, std::vector<std::int64_t> box) {
  const std::int64_t swizzle = element * box[0];
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (dims[i + 1] == 1) strides[i] = 2 * kVector / element;
  }
  return {.tensor = {name},
          .dims = std::move(dims),
          .strides = std::move(strides),
          .box = std::move(box),
          .swizzle = swizzle};
}

// A step along an axis of a tensor, so many times.
struct Steps {
  std::int64_t axis = 0, times = 1;
};

// The map with these steps instead of strides, where strides of the tensor are bound.
TensorMapArgument along(const ir::Attention& attention, TensorMapArgument map,
                        const std::vector<Steps>& steps) {
  const ir::Layout& layout = layout_of(attention, map.tensor.name);
  if (!layout.bound_strides) return map;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const bool is_pages = steps[i].axis == 0 && layout.kind == ir::LayoutKind::paged;
    const bool moves = is_pages || map.dims[i + 1] > 1;
    map.axes.push_back(moves ? steps[i].axis : TensorMapArgument::kNoAxis);
    if (moves) map.strides[i] = steps[i].times;
  }
  return map;
}

TensorMapArgument map_of_patches(const ir::Attention& attention, const Tile& tile) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  const std::int64_t width = tile.patch->grid, units = d[Dim::Hq] / tile.pack;
  const bool as_units = batches_as(attention, tile) == BatchesAs::units;
  return map("q", tile.element,
             {d[Dim::Dqk], tile.pack, width, d[Dim::Sq] / width * (as_units ? 1 : d[Dim::B]),
              units * (as_units ? d[Dim::B] : 1)},
             {head, row, row * width, units == 1 ? batch : head * tile.pack},
             {tile.depth_panel(), tile.pack, tile.patch->width, tile.patch->height, 1});
}

// Batches of a tensor's map: for thd that of one sequence, which the GPU completes.
std::int64_t batches_of(const ir::Attention& attention, const std::string& name) {
  const bool packed = layout_of(attention, name).kind == ir::LayoutKind::thd;
  return packed ? 1 : stored_dims(attention, name)[0];
}

constexpr std::int64_t kMapsThreads = 128;

bool of_rows(const TensorMapArgument& map) {
  return map.tensor.name == "q" || map.tensor.name == "do";
}
// The dimension of rows, after which come heads and batches.
std::size_t row_dimension(const TensorMapArgument& map) { return map.dims.size() - 3; }
// The map as a parameter in the text of a kernel.
std::string parameter(const TensorMapArgument& map) {
  return map.tensor.name == "do" ? "d_o" : map.tensor.name;
}

}  // namespace

TensorMapArgument map_of_queries(const ir::Attention& attention, const Tile& tile) {
  if (tile.patch) return map_of_patches(attention, tile);
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  return along(
      attention,
      map("q", tile.element,
          {d[Dim::Dqk], tile.pack, d[Dim::Sq], d[Dim::Hq] / tile.pack, batches_of(attention, "q")},
          {head, row, head * tile.pack, batch},
          {tile.depth_panel(), tile.pack, tile.rows_of_head(), 1, 1}),
      {{kHeads}, {kRows}, {kHeads, tile.pack}, {kBatches}});
}

TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                              const Tile& tile, std::int64_t rows) {
  const auto [batch, head, row, column] = stored_strides(attention, name);
  const Dims4 dims = stored_dims(attention, name);
  const std::int64_t batches = batches_of(attention, name);
  const std::int64_t panel = name == "k" ? tile.depth_panel() : tile.width_panel();
  if (tile.patch) {
    const std::int64_t width = tile.patch->grid;
    return map(name, tile.element, {dims[3], width, dims[2] / width, dims[1], batches},
               {row, row * width, head, batch}, {panel, kPatchWidth, kPatchHeight, 1, 1});
  }
  return along(attention,
               map(name, tile.element, {dims[3], dims[2], dims[1], batches}, {row, head, batch},
                   {panel, rows, 1, 1}),
               {{kRows}, {kHeads}, {kBatches}});
}

std::optional<BatchesAs> batches_as(const ir::Attention& attention, const Tile& tile) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  if (d[Dim::B] == 1 || d[Dim::Hq] == tile.pack || batch == head * d[Dim::Hq]) {
    return BatchesAs::units;
  }
  return batch == row * d[Dim::Sq] ? std::optional(BatchesAs::rows) : std::nullopt;
}

std::string sequence_maps_text(const ir::Attention& attention,
                               const std::vector<TensorMapArgument>& maps, bool scheduled) {
  const std::int64_t batches = attention.dims[Dim::B];
  std::vector<std::string> parameters;
  std::string statements;
  std::int64_t place = 0;
  for (const TensorMapArgument& map : maps) {
    const std::string name = parameter(map);
    const bool is_bound = layout_of(attention, map.tensor.name).bound_strides;
    parameters.push_back(
        fmt::format("const __grid_constant__ kernels::TensorMap {0}, const {1}* "
                    "{0}_rows, const int* {0}_starts{2}",
                    name, codegen::element_type(attention.dtype_of(map.tensor.name)),
                    is_bound ? fmt::format(", long long {}_row", name) : ""));
    const std::string row =
        is_bound ? name + "_row"
                 : fmt::format("{}ll", stored_strides(attention, map.tensor.name)[kRows]);
    statements += fmt::format(
        "  kernels::map_sequence<{0}>({1}, {1}_rows + {1}_starts[b] * {2}, "
        "::min({1}_starts[b + 1] - {1}_starts[b], {3}), maps + {4} + b);\n",
        row_dimension(map), name, row, map.dims[row_dimension(map)], batches * place++);
  }
  if (scheduled) parameters.emplace_back("const int* schedule");
  const std::string count = scheduled ? "kernels::sequences_of(schedule)" : std::to_string(batches);
  return fmt::format(
      "extern \"C\" __global__ void {}(\n    {},\n    kernels::TensorMap* maps) {{\n"
      "  const int b = (int)attn_thread();\n  if (b >= {}) return;\n{}"
      "  kernels::publish_maps();\n}}\n",
      kMapsKernel, fmt::join(parameters, ",\n    "), count, statements);
}

void add_sequence_maps(const ir::Attention& attention, const std::vector<TensorMapArgument>& maps,
                       const char* schedule, plan::Program& program, plan::KernelStep& step) {
  using Tensor = plan::TensorOperand;
  const std::int64_t batches = attention.dims[Dim::B];
  const auto count = static_cast<std::int64_t>(maps.size());
  program.internals.push_back(
      plan::internal_tensor(kMaps, DType::i32, {batches * count, plan::kTensorMapBytes / 4}));
  step.outputs.emplace_back(kMaps);
  std::vector<plan::KernelArgument> arguments;
  for (const TensorMapArgument& map : maps) {
    arguments.emplace_back(map);
    arguments.emplace_back(Tensor{map.tensor.name});
    arguments.emplace_back(Tensor{of_rows(map) ? kRowStarts : kColumnStarts});
    if (layout_of(attention, map.tensor.name).bound_strides)
      arguments.emplace_back(plan::StrideArgument{map.tensor.name, kRows});
  }
  if (schedule != nullptr) arguments.emplace_back(Tensor{schedule});
  arguments.emplace_back(Tensor{kMaps});
  step.launches.push_back({.kernel = kMapsKernel,
                           .grid = {ceil_div(batches, kMapsThreads), 1, 1},
                           .block = {kMapsThreads, 1, 1},
                           .arguments = std::move(arguments)});
}

}  // namespace attn::engines::native
