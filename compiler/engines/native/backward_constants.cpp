#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "compiler/codegen/kernel_text.h"
#include "compiler/engines/native/backward_kernel.h"
#include "compiler/engines/native/kernel.h"
#include "compiler/engines/shared/operands.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

class BackwardConstants {
 public:
  explicit BackwardConstants(const BackwardKernel& kernel) : kernel_(kernel) {}

  // Those that differ from BackwardDefaults, in which numbers are 0.
  std::string constants_text() const {
    const std::string base = fmt::format(
        "struct Constants : kernels::BackwardDefaults {{\n  using Float = {};\n"
        "  using Entry = {};\n",
        codegen::float_class(kernel_.product_type()), codegen::float_class(entry_type()));
    return base + narrow_types_text() + native::constants_text("int", sizes()) +
           native::constants_text("int", sizes_of_warps()) +
           native::constants_text("long long",
                                  {{"kStatisticsClass", kernel_.statistics.of_class}}) +
           native::constants_text("bool", flags()) + all_places_text() + "};\n";
  }

 private:
  Constants sizes() const {
    const bool by_batch = kernel_.blocks.axes.batch, by_head = kernel_.blocks.axes.head;
    return {{"kBlockRows", kernel_.tile.rows},
            {"kKeys", kernel_.tile.keys},
            {"kDepth", kernel_.depth()},
            {"kWidth", kernel_.width()},
            {"kBatches", kernel_.dims[Dim::B]},
            {"kHeads", kernel_.dims[Dim::Hq]},
            {"kKeyHeads", kernel_.dims[Dim::Hkv]},
            {"kHeadsOfKey", kernel_.heads_of_key()},
            {"kHeadsOfClass", kernel_.statistics.heads},
            {"kRows", kernel_.dims[Dim::Sq]},
            {"kColumns", kernel_.dims[Dim::Skv]},
            {"kPaddedRows", kernel_.padded_rows()},
            {"kRowBlocks", kernel_.row_blocks_of_head()},
            {"kKeyBlocks", kernel_.blocks.tiles},
            {"kItems", kernel_.items()},
            {"kDivided", kernel_.parts()},
            {"kSection", kernel_.section()},
            {"kListsOfBatch", !by_batch ? 0
                              : by_head ? kernel_.dims[Dim::Hkv]
                                        : 1},
            {"kListsOfHead", by_head ? 1 : 0}};
  }

  // Those of kernels of warps.
  Constants sizes_of_warps() const {
    const RowTile& tile = kernel_.tile;
    if (!tile.of_warps) return {};
    Constants sizes = {{"kStages", tile.stages},
                       {"kRowGroups", tile.row_groups},
                       {"kHeldKeys", held_steps(tile.held_keys, Dim::Dqk)},
                       {"kHeldValues", held_steps(tile.held_values, Dim::Dv)},
                       {"kDepthPanel", tile.depth_panel()},
                       {"kWidthPanel", tile.width_panel()}};
    if (const auto summed = kernel_.summed_part())
      sizes.emplace_back("kSummed", static_cast<std::int64_t>(*summed) + 1);
    if (tile.is_short && kernel_.expressions.table) {
      sizes.emplace_back("kTableHead", kernel_.expressions.table->head_stride);
      sizes.emplace_back("kTableRow", kernel_.expressions.table->row_stride);
    }
    return sizes;
  }

  // As many of those that a tile may hold as there are.
  std::int64_t held_steps(std::int64_t most, Dim columns) const {
    return std::min(most, ceil_div(kernel_.dims[columns], 16));
  }

  Constants flags() const {
    const Table table = kernel_.expressions.table.value_or(Table());
    return {{"kNarrow", kernel_.rows.has_value()},
            {"kLengths", kernel_.lengths()},
            {"kOrdered", kernel_.ordered()},
            {"kBand", kernel_.band.has_value()},
            {"kRandom", kernel_.attention.is_random()},
            {"kHeadsOutside", kernel_.heads_outside()},
            {"kRowsFit", kernel_.rows_fit()},
            {"kDiagonals", kernel_.diagonals()},
            {"kShares", kernel_.shares()},
            {"kBatchesFirst", kernel_.batches_first()},
            {"kPadded", kernel_.expressions.padded},
            {"kOfWarps", kernel_.tile.of_warps},
            {"kShort", kernel_.tile.is_short},
            {"kScatters", kernel_.tile.scatters},
            {"kTable", kernel_.expressions.table.has_value()},
            {"kTableOfBatch", table.batches > 1},
            {"kTableOfHead", table.heads > 1}};
  }

  // Types of an 8-bit attention (attn/backward_widening.cuh).
  std::string narrow_types_text() const {
    if (!kernel_.rows) return "";
    std::string text;
    for (const auto& [type, tensor] : std::initializer_list<std::pair<const char*, const char*>>{
             {"Narrow", "q"}, {"NarrowGradient", "do"}, {"Stored", "o"}, {"Gradient", "dq"}}) {
      text += fmt::format("  using {} = {};\n", type,
                          codegen::float_class(kernel_.attention.dtype_of(tensor)));
    }
    return text;
  }

  // The type of the table's elements; without a table the kernel's, as its text names one anyway.
  DType entry_type() const {
    const std::optional<Table>& table = kernel_.expressions.table;
    return table ? kernel_.attention.find_tensor(table->tensor)->dtype : kernel_.product_type();
  }

  std::string all_places_text() const {
    const ir::Attention& attention = kernel_.attention;
    std::string text;
    if (kernel_.rows) {
      text =
          places_of(attention, {{"Queries", "dq"},
                                {"Keys", "dk"},
                                {"Values", "dv"},
                                {"Outputs", "o"},
                                {"NarrowQueries", "q"},
                                {"NarrowKeys", "k"},
                                {"NarrowValues", "v"}}) +
          places_of(
              *kernel_.rows,
              {{"QueryRows", "q"}, {"KeyRows", "k"}, {"ValueRows", "v"}, {"GradientRows", "do"}});
    } else {
      text = places_of(attention,
                       {{"Queries", "q"}, {"Keys", "k"}, {"Values", "v"}, {"Outputs", "o"}});
    }
    const Dims4 of_rows = {kernel_.statistics.batch, kernel_.statistics.head,
                           kernel_.statistics.row, 0};
    return text + places_text("Statistics", {}, of_rows, false, kernel_.is_packed("o"));
  }

  using Places = std::initializer_list<std::pair<const char*, const char*>>;
  std::string places_of(const ir::Attention& attention, Places tensors) const {
    std::string text;
    for (const auto& [type, name] : tensors) {
      const Dims4 dims = logical_dims(attention, name), strides = stored_strides(attention, name);
      text += places_text(type, dims, strides, moves_in_vectors(dims, strides),
                          kernel_.is_packed(name));
    }
    return text;
  }

  // Gradients have the layouts of their tensors.
  static std::string places_text(const char* type, const Dims4& dims, const Dims4& strides,
                                 bool aligned, bool packed) {
    return fmt::format("  using {} = kernels::Places<{}, {}, {}, {}, {}, {}, {}>;\n", type,
                       strides[0], strides[1], strides[2], strides[3], dims[3], aligned, packed);
  }

  const BackwardKernel& kernel_;
};

}  // namespace

std::string constants_of(const BackwardKernel& kernel) {
  return BackwardConstants(kernel).constants_text();
}

}  // namespace attn::engines::native
