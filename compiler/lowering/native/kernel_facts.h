// What the attention kernel of a kernel step is made of. A plan file has only the kernel's text and
// launches, so this is read from these: the constants and lists that kernel.h and backward.h write.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/plan/program.h"

namespace attn::lowering::native {

// Blocks of all tiles of one head, or of every list where lists differ by batch or head.
struct BlockCounts {
  std::int64_t lists = 1;
  std::int64_t full = 0;     // no mask is evaluated
  std::int64_t partial = 0;  // masks are evaluated
  std::int64_t skipped = 0;  // of as many as cover all scores

  std::int64_t all() const { return full + partial + skipped; }
};

// A block of threads holds a tile, and streams blocks of the other side by: of the forward tiles
// are of queries, and blocks of keys; of the backward the other way around.
struct KernelFacts {
  bool backward = false;
  std::size_t launch = 0;         // of the step
  std::int64_t tile = 0;          // rows of a head, or keys
  std::int64_t block = 0;         // keys, or rows
  std::int64_t heads = 1;         // that share a tile
  std::int64_t depth = 0;         // of q and k, as in shared memory
  std::int64_t width = 0;         // of v
  std::int64_t groups = 0;        // warp groups that compute
  std::int64_t stages = 0;        // of what is streamed
  std::int64_t query_stages = 0;  // of a forward
  std::int64_t table_stages = 0;  // of a captured table that scores read
  std::int64_t parts = 1;         // of a tile's keys, that different blocks of threads compute
  std::int64_t items = 0;         // tiles of all batches and heads, times parts
  // Parts of all divided tiles of a backward; if the GPU makes the lists, at most.
  std::int64_t divided = 0;
  std::int64_t patch_width = 0, patch_height = 0;  // of a grid, if the tile is a rectangle of it
  bool has_lengths = false;                        // which cut the lists at run time
  bool gathers = false;      // keys or values in small pages are copied row by row
  bool makes_lists = false;  // a kernel before does, at every execute
  bool lists_of_batch = false, lists_of_head = false;  // which differ by these
  // Absent if a kernel before makes the lists, or the text does not say it.
  std::optional<BlockCounts> blocks{};
};

// The facts of a step; nothing for one that is not of this engine, or whose text does not say it.
std::optional<KernelFacts> facts_of(const plan::KernelStep& step);

// What a launch of the step does, in one line; empty if it is not of this engine.
std::string what_of_launch(const plan::KernelStep& step, const plan::Launch& launch);

}  // namespace attn::lowering::native
