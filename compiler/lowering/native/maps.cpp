#include "compiler/lowering/native/maps.h"

#include <utility>
#include <vector>

#include "compiler/lowering/cudnn/operands.h"
#include "compiler/lowering/cudnn/vectors.h"

namespace attn::lowering::native {
namespace {

using ir::Dim;
using plan::TensorMapArgument;

// A dimension of one element has no stride that matters.
// The first of `box` is a panel.
TensorMapArgument map(const std::string& name, std::vector<std::int64_t> dims,
                      std::vector<std::int64_t> strides, std::vector<std::int64_t> box) {
  const std::int64_t swizzle = 2 * box[0];
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (dims[i + 1] == 1) strides[i] = kVector;
  }
  return {.tensor = {name},
          .dims = std::move(dims),
          .strides = std::move(strides),
          .box = std::move(box),
          .swizzle = swizzle};
}

TensorMapArgument map_of_patches(const ir::Attention& attention, const Tile& tile) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  const std::int64_t width = tile.patch->grid, units = d[Dim::Hq] / tile.pack;
  const bool as_units = batches_as(attention, tile) == BatchesAs::units;
  return map("q",
             {d[Dim::Dqk], tile.pack, width, d[Dim::Sq] / width * (as_units ? 1 : d[Dim::B]),
              units * (as_units ? d[Dim::B] : 1)},
             {head, row, row * width, units == 1 ? batch : head * tile.pack},
             {tile.depth_panel(), tile.pack, tile.patch->width, tile.patch->height, 1});
}

// Of thd tensors the map is that of one sequence, which the GPU completes.
std::int64_t batches_of(const ir::Attention& attention, const std::string& name) {
  const bool packed = layout_of(attention, name).kind == ir::LayoutKind::thd;
  return packed ? 1 : stored_dims(attention, name)[0];
}

}  // namespace

TensorMapArgument map_of_queries(const ir::Attention& attention, const Tile& tile) {
  if (tile.patch) return map_of_patches(attention, tile);
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  return map(
      "q", {d[Dim::Dqk], tile.pack, d[Dim::Sq], d[Dim::Hq] / tile.pack, batches_of(attention, "q")},
      {head, row, head * tile.pack, batch},
      {tile.depth_panel(), tile.pack, tile.rows_of_head(), 1, 1});
}

TensorMapArgument map_of_keys(const ir::Attention& attention, const std::string& name,
                              const Tile& tile, std::int64_t rows) {
  const auto [batch, head, row, column] = stored_strides(attention, name);
  const Dims4 dims = stored_dims(attention, name);
  const std::int64_t batches = batches_of(attention, name);
  const std::int64_t panel = name == "k" ? tile.depth_panel() : tile.width_panel();
  if (tile.patch) {
    const std::int64_t width = tile.patch->grid;
    return map(name, {dims[3], width, dims[2] / width, dims[1], batches},
               {row, row * width, head, batch}, {panel, kPatchWidth, kPatchHeight, 1, 1});
  }
  return map(name, {dims[3], dims[2], dims[1], batches}, {row, head, batch}, {panel, rows, 1, 1});
}

std::optional<BatchesAs> batches_as(const ir::Attention& attention, const Tile& tile) {
  const ir::Dims& d = attention.dims;
  const auto [batch, head, row, column] = stored_strides(attention, "q");
  if (d[Dim::B] == 1 || d[Dim::Hq] == tile.pack || batch == head * d[Dim::Hq]) {
    return BatchesAs::units;
  }
  return batch == row * d[Dim::Sq] ? std::optional(BatchesAs::rows) : std::nullopt;
}

}  // namespace attn::lowering::native
