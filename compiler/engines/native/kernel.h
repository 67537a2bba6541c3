// What attnc's forward kernel is generated from, and its text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/engines/native/bands.h"
#include "compiler/engines/native/classes.h"
#include "compiler/engines/native/expressions.h"
#include "compiler/engines/native/kernel_names.h"
#include "compiler/engines/native/key_blocks.h"
#include "compiler/engines/native/made_lists.h"
#include "compiler/engines/native/tiles.h"
#include "compiler/ir/attention.h"

namespace attn::engines::native {

struct Kernel {
  Tile tile;
  KeyBlocks blocks;
  Expressions expressions;
  std::vector<std::string> outputs;  // names
  StatisticsPlaces statistics;
  // The GPU makes the lists, at every execute: inputs decide what masks show. `blocks` is an upper
  // bound then.
  bool makes_lists = false;
  // Blocks have a closed form, which the kernel computes. `blocks` is an upper bound then.
  std::optional<ClosedBand> band{};
  std::int64_t tiles_of_block = 1;  // that a block of threads lists
  std::int64_t section = 1;         // units of heads whose tiles are sorted together
  std::int64_t front = 0;           // longest tiles of each unit, which come before all sections
  // A tile's blocks of keys are divided among so many blocks of threads.
  std::int64_t parts = 1;
  bool one_turn = false;  // each block of threads has one item, and takes no others
  // Blocks of threads that compute what a schedule says, which the GPU makes (schedules.h); 0:
  // there is none.
  std::int64_t workers = 0;
  std::optional<ChosenKeys> chosen{};  // where keys are, if lists name them
  // Why the schedule may not have keys that sequences share; empty if it may (why_not_shared).
  std::string unshared{};

  bool is_scheduled() const { return workers > 0; }
  // Whether blocks of threads take tiles from a counter, or count parts.
  bool has_counter() const { return !is_scheduled() && !tile.walks && !one_turn; }
  bool shares_keys() const { return is_scheduled() && unshared.empty(); }
  // Whether tiles may be computed in parts.
  bool has_parts() const { return parts > 1 || is_scheduled(); }

  std::int64_t units(const ir::Dims& dims) const { return dims[ir::Dim::Hq] / tile.pack; }
  // Tiles of all units.
  std::int64_t items(const ir::Dims& dims) const {
    return blocks.tiles * units(dims) * dims[ir::Dim::B];
  }
  // What warps store of parts, in f32 elements.
  std::int64_t part_elements(const ir::Dims& dims) const {
    return items(dims) * parts * tile.warps() * (4 * 32 + 16 * tile.share());
  }
  // The counter of tiles, and with parts one for each warp of each tile; then one for each list
  // that the GPU makes. A schedule has its own.
  std::int64_t counters(const ir::Dims& dims) const {
    return first_counter_of_lists(dims) + (makes_lists ? made_lists(dims).lists : 0);
  }
  std::int64_t first_counter_of_lists(const ir::Dims& dims) const {
    return 1 + (parts > 1 ? items(dims) * tile.warps() : 0);
  }
  // Whether blocks are known at run time alone.
  bool depends_on_inputs() const { return makes_lists || band; }
  // What the first key of each tile is a multiple of, with a band that does not begin at key 0.
  std::int64_t band_start() const;
  // Sizes of the lists that the GPU makes.
  MadeLists made_lists(const ir::Dims& dims) const;
  // Rows of "k" or "v" that one copy moves: those of a block, or, in pages of `page` rows, as many
  // as are of one page wherever a block begins.
  std::int64_t piece(std::int64_t page) const;
  // Whether its launch overlaps that before: one that makes lists, a schedule, or values with
  // adjacent keys.
  bool overlaps(const ir::Attention& attention) const;
  // Whether rows of "k" or "v" in such pages, or in none (0), are copied one by one, by a warp
  // group: pieces would be many, or they are widened.
  bool gathers(std::int64_t page) const;
};
// Whether the kernel reads "q", "k" or "v" row by row, by a pointer rather than a map: in small
// pages, or as all kernels of warps do.
bool reads_rows(const Kernel& kernel, const ir::Attention& attention, const std::string& name);
// Whether the kernel reads "k" or "v" in groups (maps.h).
bool reads_groups(const ir::Attention& attention, const Kernel& kernel, const std::string& name);

// Rows of a page of "k" or "v"; 0 if it is not paged.
std::int64_t page_of(const ir::Attention& attention, const std::string& name);
// The same of those that a kernel with such a tile reads: 8-bit values, and keys that are copied,
// are in no pages (quantized.h, padded_rows.h).
std::int64_t read_page_of(const ir::Attention& attention, const Tile& tile,
                          const std::string& name);
// The tensors that say where the rows of each batch begin (kRowStarts, kColumnStarts), of those
// that are packed.
std::vector<std::string> starts_of_packed(const ir::Attention& attention);
// The map by which the kernel reads "q", "k" or "v".
plan::TensorMapArgument map_of(const ir::Attention& attention, const Kernel& kernel,
                               const std::string& name);
// Page tables that the kernel reads, without repetition.
std::vector<std::string> page_tables(const ir::Attention& attention, const Kernel& kernel);

// A stride that the kernel takes at run time, in this field of `tensors` (forward_tensors.cuh).
struct BoundStride {
  plan::StrideArgument of;
  std::string field;
};
std::vector<BoundStride> bound_strides(const ir::Attention& attention, const Kernel& kernel);

// Text to come before that of a kernel: its waits end after about a second, with an error that
// names the barrier (attn/hopper.cuh). In debug builds all kernels have it.
std::string watch_text(const std::vector<std::string>& names);  // of pairs of barriers
std::string watch_text(const Tile& tile);
// Members of a class `Constants`, with their numbers. Those that are 0 have no text: that is what
// ForwardDefaults and BackwardDefaults (attn/forward_defaults.cuh) say.
using Constants = std::vector<std::pair<const char*, std::int64_t>>;
std::string constants_text(const char* type, const Constants& constants);
// A statement that sets a field of the kernel's `tensors`.
std::string field_text(std::string_view field, std::string_view value);
// Parameters of tensors and params, each after a comma; and a statement that makes the object
// `expressions` of them.
std::string parameters_text(const codegen::KernelInputs& inputs);
// What a launch passes for these parameters.
std::vector<plan::KernelArgument> arguments_of(const codegen::KernelInputs& inputs);
std::string expressions_object(const ir::Attention& attention, const codegen::KernelInputs& inputs);

// CUDA C++.
std::string source_of(const ir::Attention& attention, const Kernel& kernel);

// What its step says of it; not in which launch it is.
plan::KernelFacts facts_of(const ir::Attention& attention, const Kernel& kernel);

}  // namespace attn::engines::native
