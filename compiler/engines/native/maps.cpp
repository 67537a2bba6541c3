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

// The last dimension of a tensor's map: of batches, or pages; of a packed tensor, of all rows and
// the end of the last (attn/packed_rows.cuh).
struct Last {
  std::int64_t size = 0, stride = 0, axis = 0;
  std::int64_t before = 0;  // steps that the map begins before the tensor
};
Last last_of(const ir::Attention& attention, const std::string& name) {
  const auto [batches, heads, rows, columns] = stored_dims(attention, name);
  const auto [batch, head, row, column] = stored_strides(attention, name);
  if (layout_of(attention, name).kind != ir::LayoutKind::thd) return {batches, batch, kBatches};
  return {batches * rows + 1, row, kRows, rows};
}

TensorMapArgument before(TensorMapArgument map, const Last& last) {
  map.before = last.before;
  return map;
}

}  // namespace

TensorMapArgument map_of_queries(const ir::Attention& attention, const Tile& tile) {
  if (tile.patch) return map_of_patches(attention, tile);
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  const Last last = last_of(attention, "q");
  return before(along(attention,
                      map("q", tile.element,
                          {d[Dim::Dqk], tile.pack, d[Dim::Sq], d[Dim::Hq] / tile.pack, last.size},
                          {head, row, head * tile.pack, last.stride},
                          {tile.depth_panel(), tile.pack, tile.rows_of_head(), 1, 1}),
                      {{kHeads, 1}, {kRows, 1}, {kHeads, tile.pack}, {last.axis, 1}}),
                last);
}

TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                              const Tile& tile, std::int64_t rows) {
  const auto [batch, head, row, column] = stored_strides(attention, name);
  const Dims4 dims = stored_dims(attention, name);
  const Last last = last_of(attention, name);
  const std::int64_t panel = name == "k" ? tile.depth_panel() : tile.width_panel();
  if (tile.patch) {
    const std::int64_t width = tile.patch->grid;
    return map(name, tile.element, {dims[3], width, dims[2] / width, dims[1], last.size},
               {row, row * width, head, batch}, {panel, kPatchWidth, kPatchHeight, 1, 1});
  }
  return before(along(attention,
                      map(name, tile.element, {dims[3], dims[2], dims[1], last.size},
                          {row, head, last.stride}, {panel, rows, 1, 1}),
                      {{kRows, 1}, {kHeads, 1}, {last.axis, 1}}),
                last);
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
