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

// The first of `box` is a panel. A dimension of one element has no stride that matters.
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

// The map of a packed tensor: that of columns and heads, with the dimension `rows` and two behind
// all others (attn/packed_rows.cuh). `box`: rows of a copy.
TensorMapArgument packed(const ir::Attention& attention, TensorMapArgument map, std::size_t rows,
                         std::int64_t box) {
  constexpr std::int64_t kSteps = TensorMapArgument::kPackedSteps;
  constexpr std::int64_t kMost = TensorMapArgument::kPackedMost;
  const std::int64_t row = stored_strides(attention, map.tensor.name)[kRows];
  const auto width = static_cast<std::int64_t>(size_of(attention.dtype_of(map.tensor.name)));
  const auto place = static_cast<std::ptrdiff_t>(rows);
  map.dims.insert(map.dims.begin() + place, kSteps);
  map.box.insert(map.box.begin() + place, box);
  map.strides.insert(map.strides.begin() + place - 1, row);
  map.dims.insert(map.dims.end(), {kMost, kMost});
  map.box.insert(map.box.end(), {1, 1});
  map.strides.insert(map.strides.end(), {row, plan::stride_back(row, width)});
  std::vector<Steps> steps = {{kHeads, 1}, {kRows, 1}};
  steps.insert(steps.begin() + place - 1, {kRows, 1});
  map = along(attention, std::move(map), steps);
  if (!map.axes.empty()) map.axes.push_back(TensorMapArgument::kNoAxis);
  map.packed = true;
  return map;
}

bool is_packed(const ir::Attention& attention, const std::string& name) {
  return layout_of(attention, name).kind == ir::LayoutKind::thd;
}

}  // namespace

TensorMapArgument map_of_queries(const ir::Attention& attention, const Tile& tile) {
  if (tile.patch) return map_of_patches(attention, tile);
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  if (is_packed(attention, "q")) {
    return packed(
        attention,
        map("q", tile.element, {d[Dim::Dqk], d[Dim::Hq]}, {head}, {tile.depth_panel(), tile.pack}),
        2, tile.rows_of_head());
  }
  return along(attention,
               map("q", tile.element,
                   {d[Dim::Dqk], tile.pack, d[Dim::Sq], d[Dim::Hq] / tile.pack, d[Dim::B]},
                   {head, row, head * tile.pack, batch},
                   {tile.depth_panel(), tile.pack, tile.rows_of_head(), 1, 1}),
               {{kHeads, 1}, {kRows, 1}, {kHeads, tile.pack}, {kBatches, 1}});
}

TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                              const Tile& tile, std::int64_t rows) {
  const auto [batch, head, row, column] = stored_strides(attention, name);
  const Dims4 dims = stored_dims(attention, name);
  const std::int64_t panel = name == "k" ? tile.depth_panel() : tile.width_panel();
  if (tile.patch) {
    const std::int64_t width = tile.patch->grid;
    return map(name, tile.element, {dims[3], width, dims[2] / width, dims[1], dims[0]},
               {row, row * width, head, batch}, {panel, kPatchWidth, kPatchHeight, 1, 1});
  }
  if (is_packed(attention, name)) {
    return packed(attention, map(name, tile.element, {dims[3], dims[1]}, {head}, {panel, 1}), 1,
                  rows);
  }
  return along(attention,
               map(name, tile.element, {dims[3], dims[2], dims[1], dims[0]}, {row, head, batch},
                   {panel, rows, 1, 1}),
               {{kRows, 1}, {kHeads, 1}, {kBatches, 1}});
}

std::optional<BatchesAs> batches_as(const ir::Attention& attention, const Tile& tile) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  if (d[Dim::B] == 1 || d[Dim::Hq] == tile.pack || batch == head * d[Dim::Hq]) {
    return BatchesAs::units;
  }
  return batch == row * d[Dim::Sq] ? std::optional(BatchesAs::rows) : std::nullopt;
}

}  // namespace attn::engines::native
