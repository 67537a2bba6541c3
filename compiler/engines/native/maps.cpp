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
constexpr std::int64_t kGroupRows = 8;                       // rows

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

// A step along an axis of a tensor, so many times; of kNoAxis or kPagesAndHeads that which a map
// has.
struct Steps {
  std::int64_t axis = 0, times = 1;
};

// The map with these steps instead of strides, where strides of the tensor are bound.
TensorMapArgument along(const ir::Attention& attention, TensorMapArgument map,
                        const std::vector<Steps>& steps) {
  const ir::Layout& layout = layout_of(attention, map.tensor.name);
  if (!layout.bound_strides) return map;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].axis < 0) {
      map.axes.push_back(steps[i].axis);
      if (steps[i].axis == TensorMapArgument::kPagesAndHeads) map.strides[i] = 1;
      continue;
    }
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

// A tensor in pages as the runtime knows it.
plan::TensorInfo pool_of(const ir::Attention& attention, const std::string& name) {
  const Dims4 dims = stored_dims(attention, name), strides = stored_strides(attention, name);
  plan::TensorInfo info;
  info.dtype = attention.dtype_of(name);
  info.dims.assign(dims.begin(), dims.end());
  info.strides.assign(strides.begin(), strides.end());
  return info;
}

// The map of pages whose rows are copied in groups of kGroupRows, each with all its panels.
TensorMapArgument map_of_groups(const ir::Attention& attention, const std::string& name,
                                const Tile& tile, std::int64_t panel, std::int64_t rows) {
  const plan::TensorInfo pool = pool_of(attention, name);
  const std::int64_t row = pool.strides[2], panels = pool.dims[3] / panel;
  return along(
      attention,
      map(name, tile.element,
          {panel, kGroupRows, panels, pool.dims[2] / kGroupRows, *plan::steps_of_pages(pool)},
          {row, panel, kGroupRows * row, plan::common_step(pool)},
          {panel, kGroupRows, panels, rows / kGroupRows, 1}),
      {{kRows, 1},
       {TensorMapArgument::kNoAxis},
       {kRows, kGroupRows},
       {TensorMapArgument::kPagesAndHeads}});
}

bool is_packed(const ir::Attention& attention, const std::string& name) {
  return layout_of(attention, name).kind == ir::LayoutKind::thd;
}

std::int64_t panel_of(const std::string& name, const Tile& tile) {
  return name == "k" ? tile.depth_panel() : tile.width_panel();
}

}  // namespace

bool in_groups(const ir::Attention& attention, const std::string& name, const Tile& tile,
               std::int64_t rows) {
  if (layout_of(attention, name).kind != ir::LayoutKind::paged || tile.patch) return false;
  const std::int64_t columns = stored_dims(attention, name)[3], panel = panel_of(name, tile);
  const auto steps = plan::steps_of_pages(pool_of(attention, name));
  return rows % kGroupRows == 0 && columns > panel && columns % panel == 0 && steps &&
         *steps <= plan::TensorMapArgument::kMostSteps;
}

PoolStrides pool_strides(const ir::Attention& attention, const std::string& name, bool in_steps) {
  const plan::TensorInfo pool = pool_of(attention, name);
  const auto stride = [&](std::int64_t axis) {
    return plan::value_of({name, axis, in_steps && axis != kRows}, pool);
  };
  return {stride(kBatches), stride(kHeads), stride(kRows)};
}

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
  if (in_groups(attention, name, tile, rows)) {
    return map_of_groups(attention, name, tile, panel_of(name, tile), rows);
  }
  const auto [batch, head, row, column] = stored_strides(attention, name);
  const Dims4 dims = stored_dims(attention, name);
  const std::int64_t panel = panel_of(name, tile);
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
