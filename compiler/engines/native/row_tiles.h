// Tiles of attnc's backward kernels: how many keys a block of threads holds, and how many rows
// stream by at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::engines::native {

inline constexpr std::int64_t kMostRowsOfBlock = 128;  // of a block

// The classes of attn/backward.cuh and attn/mma_backward.cuh have these as constants.
struct RowTile {
  std::int64_t rows = 64;  // of a block
  std::int64_t keys = 128;
  double rate = 1;  // scores in the same time, compared with the best of these head dimensions
  std::int64_t depth = 128, width = 128;  // columns of q and of v, in shared memory
  std::int64_t stages = 2;                // of rows
  // Whether warps make products alone, not warp groups; then:
  bool of_warps = false;
  std::int64_t row_groups = 1;  // warps that share 16 keys, and divide the rows of a block
  std::int64_t resident = 1;    // blocks of threads of a multiprocessor
  bool scatters = false;        // no instruction of the GPU adds vectors to memory
  // Keys, and values, of so many 16 columns stay in registers, at most.
  std::int64_t held_keys = 0, held_values = 0;
  bool is_short = false;  // all keys of a head are one block (attn/mma_short_backward.cuh)

  std::int64_t groups() const { return of_warps ? (warps() + 3) / 4 : 2; }  // that compute
  std::int64_t threads() const { return of_warps ? 32 * warps() : 128 * (groups() + 1); }
  std::int64_t warps() const { return keys / 16 * row_groups; }  // with `of_warps`
  // Columns of a panel of shared memory: row groups have whole panels of dk and dv each.
  std::int64_t depth_panel() const { return panel_of(depth); }
  std::int64_t width_panel() const { return panel_of(width); }
  // Aligns shared memory.
  std::int64_t alignment() const { return of_warps ? 128 : 1024; }

 private:
  std::int64_t panel_of(std::int64_t columns) const {
    return columns / row_groups % 64 == 0 ? 64 : 32;
  }
};

// Tiles of the target's kernels that fit in shared memory, the best first: fewer rows for
// expressions that spill otherwise. `diagonals`: with sums of these.
std::vector<RowTile> row_tiles(const ir::Attention& attention, const target::Context& context,
                               bool diagonals);
// The same of kernels of one launch, on every GPU: none if the keys of a head are too many for a
// block, or rewrites leave them out (target::Rewrites).
inline constexpr std::int64_t kMostShortKeys = 128;
std::vector<RowTile> short_tiles(const ir::Attention& attention, const target::Context& context,
                                 bool diagonals);

// The most keys that any of those has for these head dimensions; 0 if there is none.
std::int64_t most_short_keys(const ir::Dims& dims);

// Bytes of shared memory that a block of threads may have, as many of which share a multiprocessor.
std::int64_t room_of(const RowTile& tile, const target::Context& context);

// Shared memory of a block of threads, in bytes. `table`: with a captured one.
std::int64_t shared_bytes(const ir::Attention& attention, const RowTile& tile, bool table,
                          bool diagonals);

}  // namespace attn::engines::native
