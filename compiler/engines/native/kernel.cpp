#include "compiler/engines/native/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "compiler/codegen/kernel_text.h"
#include "compiler/codegen/sources.h"
#include "compiler/engines/native/caches.h"
#include "compiler/engines/native/maps.h"
#include "compiler/engines/native/padded_rows.h"
#include "compiler/engines/native/programs.h"
#include "compiler/engines/native/quantized.h"
#include "compiler/engines/native/schedules.h"
#include "compiler/engines/shared/controls.h"
#include "compiler/engines/shared/lengths.h"
#include "compiler/engines/shared/operands.h"
#include "compiler/ir/cache_scales.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {
namespace {

using ir::Dim;

// Bytes, of keys and values that only one tile reads. An H200 reads those of a decode at 4.45 TB/s
// so, and at 4.07 with promotion to 256; where tiles find keys in the L2 cache, that is up to 3 %
// faster.
constexpr std::int64_t kPromotionOfOneTile = 128;

bool in_bound_pages(const ir::Attention& attention, const Tile& tile, const std::string& name) {
  return read_page_of(attention, tile, name) > 0 && layout_of(attention, name).bound_strides;
}

// Whether rows are read by strides that are known at run time alone.
bool has_bound_rows(const ir::Attention& attention, const Tile& tile, const std::string& name) {
  const bool by_rows = tile.wideners > 0 || tile.of_warps;
  return in_bound_pages(attention, tile, name) ||
         (by_rows && layout_of(attention, name).bound_strides);
}

// The constants of a kernel, as text.
class ConstantsText {
 public:
  ConstantsText(const ir::Attention& attention, const Kernel& kernel)
      : attention_(attention), dims_(attention.dims), kernel_(kernel) {}

 protected:
  // Those that differ from ForwardDefaults, in which numbers are 0, but for what needs others.
  std::string constants_text() const {
    std::string text = fmt::format(
        "struct Constants : kernels::ForwardDefaults {{\n  using Float = {};\n  using Output = "
        "{};\n",
        codegen::float_class(widens() ? DType::f16 : product_type(attention_)),
        codegen::float_class(attention_.dtype_of("o")));
    if (kernel_.tile.tables > 0 && kernel_.tile.table_element == 2)
      text += fmt::format("  using Entry = {};\n", codegen::float_class(entry_type()));
    if (widens())
      text += fmt::format("  using Narrow = {};\n", codegen::float_class(attention_.dtype));
    if (attention_.cache) {
      text += fmt::format("  using Queries = {};\n  using Keys = {};\n  using Values = {};\n",
                          codegen::float_class(attention_.dtype),
                          codegen::float_class(attention_.cache->k),
                          codegen::float_class(attention_.cache->v));
    }
    text += native::constants_text("int", tile_constants());
    if (kernel_.tile.tables > 0) text += native::constants_text("int", table_constants());
    text += native::constants_text("int", page_constants());
    text += native::constants_text("int", list_constants());
    if (kernel_.tile.patch) text += native::constants_text("int", patch_constants());
    text += native::constants_text("bool", flags());
    text += native::constants_text("long long", strides());
    if (kernel_.statistics.of_class != 0)
      text += native::constants_text("int", {{"kHeadsOfClass", kernel_.statistics.heads}});
    text += native::constants_text("long long", copied_strides());
    return text + "};\n";
  }

  Constants tile_constants() const {
    const Tile& tile = kernel_.tile;
    return {{"kGroups", tile.groups},
            {"kKeys", tile.keys},
            {"kDepth", tile.depth},
            {"kWidth", tile.width},
            {"kStored", dims_[Dim::Dv]},
            {"kTaken", copies_rows() ? dims_[Dim::Dqk] : 0},
            {"kDepthPanel", tile.depth_panel()},
            {"kWidthPanel", tile.width_panel()},
            {"kStrips", tile.strips > 1 ? tile.strips : 0},
            {"kHeldQueries", tile.held_queries()},
            {"kShares", tile.shares},
            {"kShare", tile.share()},
            {"kStages", tile.stages},
            {"kQueries", tile.queries},
            {"kWideners", tile.wideners},
            {"kNarrowColumns", format_of_keys().narrow},
            {"kScaleBlock", format_of_keys().block},
            {"kPack", tile.pack},
            {"kRowsOfTile", tile.rows_of_head()},
            {"kBatches", dims_[Dim::B]},
            {"kUnits", kernel_.units(dims_)},
            {"kHeadsOfKey", dims_[Dim::Hq] / dims_[Dim::Hkv]},
            {"kRows", dims_[Dim::Sq]},
            {"kColumns", dims_[Dim::Skv]}};
  }

  // The format of rows of keys that have several types; else one without columns.
  RowFormatInfo format_of_keys() const {
    const ir::Layout& layout = layout_of(attention_, "k");
    return layout.rows ? info(*layout.rows) : RowFormatInfo();
  }

  // The type of the table's elements.
  DType entry_type() const {
    const std::optional<Table>& table = kernel_.expressions.table;
    return table ? attention_.find_tensor(table->tensor)->dtype : attention_.dtype;
  }

  // A table that heads do not share is read from memory once for all batches.
  bool batches_first() const {
    if (kernel_.tile.walks) return true;
    const std::optional<Table>& table = kernel_.expressions.table;
    return table && table->heads > 1 && table->batches == 1;
  }

  Constants table_constants() const {
    const Table table = kernel_.expressions.table.value_or(Table());
    return {{"kTables", kernel_.tile.tables},
            {"kTablePack", kernel_.tile.table_pack},
            {"kTableElement", kernel_.tile.table_element},
            {"kTableOfBatch", table.batches > 1 ? 1 : 0},
            {"kTableOfUnit", table.heads > 1 ? 1 : 0},
            {"kTableHead", kernel_.tile.walks ? table.head_stride : 0},
            {"kTableRow", kernel_.tile.walks ? table.row_stride : 0}};
  }

  Constants page_constants() const {
    const std::int64_t k = read_page_of("k"), v = read_page_of("v");
    const auto pages = [&](const char* name, std::int64_t page) {
      return page == 0 ? 0 : page_table_dims(attention_, name)[2];
    };
    const auto piece = [&](std::int64_t page) { return page == 0 ? 0 : kernel_.piece(page); };
    Constants all = {{"kKeyPage", k},   {"kKeyPiece", piece(k)},   {"kKeyPages", pages("k", k)},
                     {"kValuePage", v}, {"kValuePiece", piece(v)}, {"kValuePages", pages("v", v)}};
    if (const auto& chosen = kernel_.chosen) {
      all.emplace_back("kCacheKeys", chosen->cache);
      all.emplace_back("kCachePage", chosen->page);
      all.emplace_back("kCachePages", chosen->pages);
      all.emplace_back("kRowsOfCache", chosen->rows);
    }
    return all;
  }

  Constants list_constants() const {
    const masks::Axes& axes = kernel_.blocks.axes;
    const bool sorted = kernel_.blocks.sorted || kernel_.depends_on_inputs();
    Constants all = {{"kTiles", kernel_.blocks.tiles},
                     {"kSplits", kernel_.parts},
                     {"kItems", kernel_.items(dims_) * kernel_.parts},
                     {"kSection", kernel_.tile.walks ? dims_[Dim::B]
                                  : sorted           ? kernel_.section
                                  : batches_first()  ? dims_[Dim::B]
                                                     : 1},
                     {"kFront", kernel_.tile.walks ? 0 : kernel_.front},
                     {"kListsOfBatch", !axes.batch ? 0
                                       : axes.head ? dims_[Dim::Hq]
                                                   : 1},
                     {"kListsOfUnit", axes.head ? 1 : 0}};
    if (kernel_.band) all.emplace_back("kBandStart", kernel_.band_start());
    if (kernel_.is_scheduled()) {
      all.emplace_back("kWorkers", kernel_.workers);
      const ScheduleFigures& figures = schedule_figures(kernel_.tile);
      all.emplace_back("kBetween", figures.between);
      all.emplace_back("kMerging", figures.merging);
      all.emplace_back("kLeastSpan", figures.least_span);
      all.emplace_back("kLongShare", figures.long_share);
      all.emplace_back("kTurnsOfShare", figures.turns);
      all.emplace_back("kLeastOfTurns", figures.least_part);
      all.emplace_back("kSlots", schedule_sizes(dims_, kernel_).slots);
    }
    if (!kernel_.makes_lists) return all;
    const MadeLists lists = kernel_.made_lists(dims_);
    all.emplace_back("kLists", lists.lists);
    all.emplace_back("kCellKeys", kernel_.tile.cell);
    all.emplace_back("kCells", lists.cells);
    all.emplace_back("kMostRuns", lists.most_runs());
    all.emplace_back("kTilesOfBlock", kernel_.tiles_of_block);
    all.emplace_back("kListsDone", kernel_.first_counter_of_lists(dims_));
    return all;
  }

  Constants patch_constants() const {
    const Patch& patch = *kernel_.tile.patch;
    const bool as_rows = batches_as(attention_, kernel_.tile) == BatchesAs::rows;
    return {{"kGrid", patch.grid},
            {"kPatchWidth", patch.width},
            {"kPatchHeight", patch.height},
            {"kRowsOfBatch", as_rows ? dims_[Dim::Sq] / patch.grid : 0},
            {"kUnitsOfBatch", as_rows ? 0 : kernel_.units(dims_)}};
  }

  Constants flags() const {
    return {{"kTurns", kernel_.tile.groups > 1 && !kernel_.tile.of_warps},
            {"kWalks", kernel_.tile.walks},
            {"kOneTurn", kernel_.one_turn},
            {"kPatches", kernel_.tile.patch.has_value()},
            {"kWidens", kernel_.tile.wideners > 0},
            {"kNarrow", widens()},
            {"kNarrowKeys", attention_.cache && kernel_.tile.of_warps},
            {"kConvertsQueries", attention_.cache && attention_.cache->factor_of_queries},
            {"kEightRows", has_eight_rows()},
            {"kTokenScales", kernel_.tile.token_scales},
            {"kBatchesFirst", batches_first()},
            {"kBand", kernel_.band.has_value()},
            {"kScheduled", kernel_.is_scheduled()},
            {"kPrefix", kernel_.shares_keys()},
            {"kLastTilesFirst", kernel_.band && kernel_.band->end_varies},
            {"kLazy", !attention_.wants_max_or_sum() &&
                          !(attention_.wants_amax_s && (kernel_.has_parts() || widens()))},
            {"kAmaxOfWeights", attention_.wants_amax_s},
            {"kAmaxOfOutputs", attention_.wants_amax_o},
            {"kLengths", attention_.lengths_kv},
            {"kPadded", kernel_.expressions.padded},
            {"kOverlaps", kernel_.overlaps(attention_)},
            {"kThdQ", is_thd("q")},
            {"kThdK", is_thd("k")},
            {"kThdV", is_thd("v") && !is_transposed()},
            {"kThdO", is_thd("o")},
            {"kGroupedKeys", reads_groups(attention_, kernel_, "k")},
            {"kValuesOfKeys", shares_copy()},
            {"kGroupedValues", reads_groups(attention_, kernel_, shares_copy() ? "k" : "v")},
            {"kReadOnce", kernel_.blocks.tiles == 1 && kernel_.units(dims_) == dims_[Dim::Hkv]},
            {"kGatherKeys", gathers("k")},
            {"kGatherValues", gathers("v")},
            {"kBoundKeys", has_bound_rows(attention_, kernel_.tile, "k")},
            {"kBoundValues", has_bound_rows(attention_, kernel_.tile, "v")},
            {"kBoundQueries", kernel_.tile.of_warps && layout_of(attention_, "q").bound_strides},
            {"kBoundOutput", layout_of(attention_, "o").bound_strides},
            {"kAligned",
             moves_in_vectors(logical_dims(attention_, "o"), stored_strides(attention_, "o"))}};
  }

  Constants strides() const {
    const auto [batch, head, row, column] = stored_strides(attention_, "o");
    const StatisticsPlaces& statistics = kernel_.statistics;
    return {{"kOutputBatch", batch},
            {"kOutputHead", head},
            {"kOutputRow", row},
            {"kOutputColumn", column},
            {"kStatisticsBatch", statistics.batch},
            {"kStatisticsHead", statistics.head},
            {"kStatisticsClass", statistics.of_class},
            {"kStatisticsRow", statistics.row}};
  }

  // Strides of what is copied by rows or in groups.
  Constants copied_strides() const {
    Constants all;
    if (kernel_.tile.of_warps) {
      const auto [batch, head, row, column] = stored_strides(attention_, "q");
      all = {{"kQueryBatchStride", batch}, {"kQueryHeadStride", head}, {"kQueryRowStride", row}};
      add_columns(all);
    }
    if (const auto keys = strides_of("k")) {
      all.emplace_back("kKeyPageStride", keys->page);
      all.emplace_back("kKeyHeadStride", keys->head);
      all.emplace_back("kKeyRowStride", keys->row);
    }
    if (kernel_.tile.token_scales) {
      const Dims3 keys = scale_strides(attention_, "k"), values = scale_strides(attention_, "v");
      all.insert(all.end(), {{"kKeyScalePage", keys[0]},
                             {"kKeyScaleHead", keys[1]},
                             {"kKeyScaleRow", keys[2]},
                             {"kValueScalePage", values[0]},
                             {"kValueScaleHead", values[1]},
                             {"kValueScaleRow", values[2]}});
    }
    if (const auto values = shares_copy() ? std::nullopt : strides_of("v")) {
      all.emplace_back("kValuePageStride", values->page);
      all.emplace_back("kValueHeadStride", values->head);
      all.emplace_back("kValueRowStride", values->row);
    }
    return all;
  }
  // Strides of columns that are not adjacent.
  void add_columns(Constants& all) const {
    for (const auto& [name, constant] : {std::pair("q", "kQueryColumnStride"),
                                         {"k", "kKeyColumnStride"},
                                         {"v", "kValueColumnStride"}}) {
      const std::int64_t column = stored_strides(attention_, name)[3];
      if (column != 1) all.emplace_back(constant, column);
    }
  }
  std::optional<PoolStrides> strides_of(const char* name) const {
    if (kernel_.tile.of_warps) {
      const auto [batch, head, row, column] = stored_strides(attention_, name);
      return PoolStrides{batch, head, row};
    }
    const bool in_steps = reads_groups(attention_, kernel_, name);
    const bool is_bound = has_bound_rows(attention_, kernel_.tile, name);
    if ((!gathers(name) && !in_steps) || is_bound) return std::nullopt;
    if (kernel_.chosen)
      return name == std::string_view("k") ? kernel_.chosen->k : kernel_.chosen->v;
    return native::pool_strides(attention_, name, in_steps);
  }

  // Whether tiles have no more rows than a thread has first. Products of 8 bits follow maxima of
  // their own, and a tile of shared keys has rows of several sequences.
  bool has_eight_rows() const {
    const Tile& tile = kernel_.tile;
    return !tile.of_warps && !tile.patch && tile.shares == 1 && !attention_.quantize &&
           !kernel_.shares_keys() && dims_[Dim::Sq] * tile.pack <= 8;
  }

  bool is_thd(const char* name) const {
    return layout_of(attention_, name).kind == ir::LayoutKind::thd;
  }

  std::int64_t read_page_of(const char* name) const {
    return native::read_page_of(attention_, kernel_.tile, name);
  }
  bool gathers(const char* name) const { return kernel_.gathers(read_page_of(name)); }
  // Whether rows of 8 bits are widened by threads that copy, or a kernel before copies some.
  bool widens() const { return attention_.quantize && kernel_.tile.of_warps; }
  bool is_transposed() const { return is_copied_before(attention_, kernel_.tile); }
  // Whether one copy of a block brings keys and values.
  bool shares_copy() const { return kernel_.tile.values_of_keys; }
  // Whether some are copied row by row.
  bool copies_rows() const { return kernel_.tile.of_warps || gathers("k") || gathers("v"); }

  const ir::Attention& attention_;
  const ir::Dims& dims_;
  const Kernel& kernel_;
};

class Source : private ConstantsText {
 public:
  using ConstantsText::ConstantsText;

  std::string make() const {
    const bool of_warps = kernel_.tile.of_warps;
    std::string text = kWatched && !of_warps ? watch_text(kernel_.tile) : "";
    if (of_warps || !kernel_.makes_lists)
      text += codegen::include_text(kernel_.tile.walks ? "mma_walking.cuh"
                                    : of_warps         ? "mma_forward.cuh"
                                                       : "forward.cuh");
    if (kernel_.makes_lists) text += codegen::include_text("key_lists.cuh");
    if (kernel_.is_scheduled()) text += codegen::include_text("schedule_maker.cuh");
    if (is_transposed()) text += codegen::include_text("transposed_values.cuh");
    if (is_transposed() && (is_padded(attention_, "q") || is_padded(attention_, "k")))
      text += codegen::include_text("padded_rows.cuh");
    if (!kernel_.band)
      text += kernel_.makes_lists ? lists_in_memory_text() : lists_text(kernel_.blocks);
    text += constants_text() +
            expressions_text(attention_, kernel_.expressions, kernel_.makes_lists, kernel_.band);
    if (kernel_.makes_lists) text += lister_text();
    if (kernel_.is_scheduled())
      text += schedule_kernel_text(inputs(), expressions(), kernel_.shares_keys());
    if (is_transposed()) text += transposed_values_text(attention_, inputs(), expressions());
    if (widens()) text += zeroed_magnitudes_text(attention_);
    return text + forward_text();
  }

 private:
  std::string inputs() const { return parameters_text(kernel_.expressions.inputs); }
  std::string expressions() const {
    return expressions_object(attention_, kernel_.expressions.inputs);
  }

  std::string lister_text() const {
    return lists_kernel_text(
        inputs(), expressions(),
        "kernels::list_keys<Constants>(\n"
        "      expressions, {tiles, sorted, runs, counter + Constants::kListsDone});");
  }

  std::string forward_text() const {
    std::vector<std::string> parameters;
    std::string fields;
    const auto set = [&fields](std::string_view field, const std::string& value) {
      fields += field_text(field, value);
    };
    const auto add = [&](std::string_view field, std::string_view type, const std::string& name) {
      parameters.push_back(fmt::format("{} {}", type, name));
      set(field, name);
    };
    const auto add_map = [&](const char* name) {
      parameters.push_back(fmt::format("const __grid_constant__ kernels::TensorMap {}", name));
      set(name, fmt::format("&{}", name));
    };
    for (const auto& [name, rows, bytes] : {std::tuple("q", "query_rows", "query_bytes"),
                                            {"k", "key_rows", "key_bytes"},
                                            {"v", "value_rows", "value_bytes"}}) {
      if (shares_copy() && name == std::string_view("v")) continue;
      if (!reads_rows(kernel_, attention_, name))
        add_map(name);
      else if (size_of(stored_dtype(attention_, name)) == 1)
        add(bytes, "const unsigned char*", name);
      else
        add(rows, "const unsigned short*", name);
    }
    if (kernel_.tile.token_scales) {
      add("key_scales", "const float*", std::string(ir::kKeyScale));
      add("value_scales", "const float*", std::string(ir::kValueScale));
    }
    if (kernel_.expressions.table && kernel_.tile.walks)
      add("table_rows", "const unsigned short*", "table");
    else if (kernel_.expressions.table)
      add_map("table");
    for (const std::string& name : kernel_.outputs) {
      const std::string_view type = ir::is_o(name) ? codegen::element_type(attention_.dtype_of("o"))
                                    : ir::is_amax(name) ? "unsigned"
                                                        : "float";
      add(name, fmt::format("{}*", type), name);
    }
    if (kernel_.has_counter()) add("counter", "int*", "counter");
    for (const std::string& table : page_tables(attention_, kernel_)) {
      parameters.push_back("const int* " + table);
    }
    for (const auto& [name, field] : {std::pair("k", "key_table"), {"v", "value_table"}}) {
      const bool has_table = !kernel_.chosen || !kernel_.chosen->table.empty();
      if (has_table && read_page_of(name) > 0) set(field, page_table_name(attention_, name));
    }
    if (kernel_.chosen) {
      set("chosen", "t_" + kernel_.chosen->keys);
      if (!kernel_.chosen->lengths.empty()) set("cache_lengths", "t_" + kernel_.chosen->lengths);
    }
    for (const std::string& starts : starts_of_packed(attention_)) {
      add(starts == kRowStarts ? "row_starts" : "column_starts", "const int*", starts);
    }
    for (const BoundStride& stride : bound_strides(attention_, kernel_)) {
      add(stride.field, "long long", fmt::format("stride_{}", parameters.size()));
    }
    if (kernel_.is_scheduled()) add("schedule", "int*", "schedule");
    if (kernel_.has_parts()) add("parts", "float*", "parts");
    for (const char* name : {"descale_v", "descale_s", "scale_s", "scale_o"}) {
      if (attention_.quantize && attention_.find_tensor(name) != nullptr)
        set(name, fmt::format("t_{}", name));
    }
    if (kernel_.makes_lists) {
      parameters.emplace_back("const kernels::Tile* tiles, const kernels::Run* runs");
    }
    const std::string check =
        fmt::format("static_assert(kernels::Stages<Constants>::kBytes + {} == {}, \"\");\n",
                    kernel_.tile.alignment(), kernel_.tile.shared_bytes());
    return check +
           fmt::format(
               "extern \"C\" __global__ void __launch_bounds__({}, {}) {}(\n    {}{}) {{\n  {}\n"
               "  kernels::ForwardTensors tensors;\n{}"
               "  kernels::{}<Constants>(tensors, expressions, {}{{{}}});\n}}\n",
               kernel_.tile.threads(), kernel_.tile.resident, kForwardKernel,
               fmt::join(parameters, ",\n    "), inputs(), expressions(), fields,
               kernel_.tile.walks      ? "walking_forward"
               : kernel_.tile.of_warps ? "forward_of_warps"
                                       : "forward",
               kernel_.band ? "kernels::NoLists" : "Lists",
               kernel_.makes_lists ? "tiles, runs" : "");
  }
};

}  // namespace

MadeLists Kernel::made_lists(const ir::Dims& dims) const {
  return {.lists = (blocks.axes.batch ? dims[Dim::B] : 1) * (blocks.axes.head ? dims[Dim::Hq] : 1),
          .tiles = blocks.tiles,
          .cells = tile.cells_of(dims[Dim::Skv]),
          .cells_of_block = tile.keys / tile.cell};
}

std::int64_t Kernel::piece(std::int64_t page) const {
  if (page == 0) return tile.keys;
  std::int64_t rows = std::gcd(page, tile.keys);
  if (band) return std::gcd(rows, band_start());
  if (makes_lists) return std::gcd(rows, tile.cell);
  for (const KeyRun& run : blocks.runs) rows = std::gcd(rows, run.key);
  return rows;
}

std::int64_t Kernel::band_start() const { return band->begins ? tile.cell : tile.keys; }

std::int64_t page_of(const ir::Attention& attention, const std::string& name) {
  const ir::Layout& layout = layout_of(attention, name);
  return layout.kind == ir::LayoutKind::paged ? layout.page : 0;
}

std::int64_t read_page_of(const ir::Attention& attention, const Tile& tile,
                          const std::string& name) {
  const bool copied =
      is_copied_before(attention, tile) && (name == "v" || is_padded(attention, name));
  return copied ? 0 : page_of(attention, name);
}

bool reads_groups(const ir::Attention& attention, const Kernel& kernel, const std::string& name) {
  const std::int64_t page = read_page_of(attention, kernel.tile, name);
  return page > 0 && !kernel.tile.of_warps && !kernel.gathers(page) &&
         in_groups(attention, name, kernel.tile, kernel.piece(page));
}

bool reads_rows(const Kernel& kernel, const ir::Attention& attention, const std::string& name) {
  if (name == "q") return kernel.tile.of_warps;
  return kernel.tile.of_warps || kernel.gathers(read_page_of(attention, kernel.tile, name));
}

bool Kernel::gathers(std::int64_t page) const {
  return !tile.of_warps && (tile.wideners > 0 || piece(page) < kCell);
}

// Launches overlap on compute capability 9.0 and later alone.
bool Kernel::overlaps(const ir::Attention& attention) const {
  if (tile.of_warps) return false;
  return attention.quantize || makes_lists || is_scheduled();
}

std::vector<std::string> starts_of_packed(const ir::Attention& attention) {
  const auto any = [&](std::initializer_list<const char*> names, const char* starts) {
    return std::ranges::any_of(
        names, [&](const char* name) { return addressed_by(attention, name) == starts; });
  };
  std::vector<std::string> names;
  if (any({"q", "o"}, kRowStarts)) names.emplace_back(kRowStarts);
  if (any({"k", "v"}, kColumnStarts)) names.emplace_back(kColumnStarts);
  return names;
}

plan::TensorMapArgument map_of(const ir::Attention& attention, const Kernel& kernel,
                               const std::string& name) {
  if (is_padded(attention, name)) {
    const ir::Attention padded = with_padded_rows(attention);
    plan::TensorMapArgument map = name == "q"
                                      ? map_of_queries(padded, kernel.tile)
                                      : map_of_keys(padded, name, kernel.tile, kernel.piece(0));
    map.tensor.name = padded_name(name);
    return map;
  }
  if (name == "q") {
    return kernel.chosen
               ? map_of_queries(with_rows_of_whole(attention, *kernel.chosen), kernel.tile)
               : map_of_queries(attention, kernel.tile);
  }
  if (name == "v" && attention.quantize) return map_of_values(attention, kernel.tile);
  plan::TensorMapArgument map =
      map_of_keys(attention, name, kernel.tile, kernel.piece(page_of(attention, name)));
  if (kernel.blocks.tiles == 1) map.promotion = kPromotionOfOneTile;
  return map;
}

std::vector<std::string> page_tables(const ir::Attention& attention, const Kernel& kernel) {
  if (kernel.chosen && kernel.chosen->table.empty()) return {};
  std::vector<std::string> tables;
  for (const char* name : {"k", "v"}) {
    if (read_page_of(attention, kernel.tile, name) == 0) continue;
    std::string table = page_table_name(attention, name);
    if (tables.empty() || tables.back() != table) tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<BoundStride> bound_strides(const ir::Attention& attention, const Kernel& kernel) {
  std::vector<BoundStride> all;
  const auto add = [&all](const std::string& tensor, std::int64_t axis, std::string field,
                          bool in_steps = false) {
    all.push_back({{tensor, axis, in_steps}, std::move(field)});
  };
  for (const auto& [name, strides] : {std::pair("k", "key_strides."), {"v", "value_strides."}}) {
    const bool is_copied = name != std::string_view("v") || !kernel.tile.values_of_keys;
    if (!is_copied || !has_bound_rows(attention, kernel.tile, name)) continue;
    const std::string field = strides;
    const std::string of = attention.values_of_keys ? "k" : name;
    const bool in_pages = in_bound_pages(attention, kernel.tile, name);
    if (in_pages) add(page_table_name(attention, name), 0, field + "table");
    const bool in_steps = reads_groups(attention, kernel, name);
    if (!reads_rows(kernel, attention, name) && !in_steps) continue;
    if (in_pages) add(of, 0, field + "page", in_steps);
    add(of, 1, field + "head", in_steps);
    if (!in_steps) add(of, 2, field + "row");
  }
  if (kernel.tile.of_warps && layout_of(attention, "q").bound_strides) {
    add("q", 1, "query_strides.head");
    add("q", 2, "query_strides.row");
  }
  if (layout_of(attention, "o").bound_strides) {
    add("o", 1, "output_strides.head");
    add("o", 2, "output_strides.row");
  }
  return all;
}

std::string watch_text(const std::vector<std::string>& names) {
  return fmt::format("#define ATTN_BARRIERS \"{}\"\n", fmt::join(names, "\", \""));
}

std::string watch_text(const Tile& tile) {
  std::vector<std::string> names;
  const auto add = [&names](const char* what, std::int64_t stages) {
    for (std::int64_t i = 0; i < stages; ++i) names.push_back(fmt::format("{} {}", what, i));
  };
  add("queries", tile.queries);
  add("keys", tile.stages);
  if (!tile.values_of_keys) add("values", tile.stages);
  add("table", tile.tables);
  return watch_text(names);
}

std::vector<plan::KernelArgument> arguments_of(const codegen::KernelInputs& inputs) {
  std::vector<plan::KernelArgument> all;
  for (const plan::OperandSource& source : inputs.operands) {
    if (const auto* param = std::get_if<plan::ParamOperand>(&source))
      all.emplace_back(*param);
    else
      all.emplace_back(std::get<plan::TensorOperand>(source));
  }
  return all;
}

std::string parameters_text(const codegen::KernelInputs& inputs) {
  std::string text;
  for (const std::string& input : inputs.parameters) text += ", " + input;
  return text;
}

std::string constants_text(const char* type, const Constants& constants) {
  std::string text;
  for (const auto& [name, value] : constants) {
    if (value == 0) continue;
    const std::string number = type == std::string_view("bool") ? "true" : std::to_string(value);
    text += fmt::format("  static constexpr {} {} = {};\n", type, name, number);
  }
  return text;
}

std::string field_text(std::string_view field, std::string_view value) {
  return fmt::format("  tensors.{} = {};\n", field, value);
}

std::string expressions_object(const ir::Attention& attention,
                               const codegen::KernelInputs& inputs) {
  std::string fields;
  for (std::size_t i = 0; i < inputs.operands.size(); ++i) {
    const std::string& parameter = inputs.parameters[i];
    const std::string name = parameter.substr(parameter.rfind(' ') + 1);
    const auto* tensor = std::get_if<plan::TensorOperand>(&inputs.operands[i]);
    const bool captured = tensor != nullptr && attention.find_tensor(tensor->name) != nullptr;
    const bool aligned = captured && captured_alignment(tensor->name) == 16;
    fields += ", " + (aligned ? fmt::format("kernels::aligned({})", name) : name);
  }
  return fmt::format("const Expressions expressions{{{{}}{}}};", fields);
}

std::string source_of(const ir::Attention& attention, const Kernel& kernel) {
  return Source(attention, kernel).make();
}

plan::KernelFacts facts_of(const ir::Attention& attention, const Kernel& kernel) {
  const Tile& tile = kernel.tile;
  const Patch patch = tile.patch.value_or(Patch());
  const auto gathers = [&](const char* name) {
    return kernel.gathers(read_page_of(attention, tile, name));
  };
  plan::KernelFacts facts{.tile = kernel.chosen ? 1 : tile.rows_of_head(),
                          .block = tile.keys,
                          .heads = tile.pack,
                          .depth = tile.depth,
                          .width = tile.width,
                          .groups = tile.groups * tile.shares,
                          .stages = tile.stages,
                          .query_stages = tile.queries,
                          .table_stages = tile.tables,
                          .parts = kernel.parts,
                          .items = kernel.items(attention.dims) * kernel.parts,
                          .patch_width = patch.width,
                          .patch_height = patch.height,
                          .has_lengths = attention.lengths_kv,
                          .gathers = gathers("k") || gathers("v"),
                          .makes_lists = kernel.makes_lists,
                          .has_band = kernel.band.has_value(),
                          .has_schedule = kernel.is_scheduled(),
                          .lists_of_batch = kernel.blocks.axes.batch,
                          .lists_of_head = kernel.blocks.axes.head};
  if (!kernel.depends_on_inputs()) {
    facts.blocks = counts_of(kernel.blocks, ceil_div(attention.dims[Dim::Skv], tile.keys));
  }
  return facts;
}

}  // namespace attn::engines::native
