// Tiles of attnc's forward kernel: how much of q, k and v a block of threads holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/engines/native/tables.h"
#include "compiler/engines/shared/key_runs.h"
#include "compiler/ir/attention.h"
#include "runtime/base/ceil_div.h"

namespace attn::engines::native {

// Columns of 16 bits that a swizzled copy moves: the most, of a head dimension (panel_of), or the
// least.
inline constexpr std::int64_t kPanel = 64, kSmallPanel = 32;
inline constexpr std::int64_t kGroup = 64;      // rows of a warp group
inline constexpr std::int64_t kStepBytes = 32;  // of head dimensions, in products
inline constexpr std::int64_t kMostDepth = 576, kMostWidth = 512;  // Dqk, Dv
inline constexpr std::int64_t kMostDepthOf8Bits = 256;             // both, of keys or of all
inline constexpr std::int64_t kRandomCell =
    32;  // keys that the generator of dropout numbers together

// Bytes that Tails (attn/tails.cuh) takes in shared memory for as many stages.
constexpr std::int64_t tail_bytes(std::int64_t stages) { return 32 * (stages + 1); }

// When a tile is tried: whenever its turn comes; only where kernels of others spill, for
// expressions that need many registers; or first, if it is the best, since its blocks fit the keys,
// and else after all others, for some with as many warp groups need fewer registers.
enum class TileUse { any, spare, fitting };

// The classes of attn/forward.cuh have these as constants.
struct Tile {
  std::int64_t groups = 2;         // warp groups
  std::int64_t keys = 128;         // of a block
  std::int64_t stages = 2;         // of keys and values
  std::int64_t queries = 1;        // stages of queries
  std::int64_t depth = 128;        // of q and k, in steps of products
  std::int64_t width = 128;        // of v, a multiple of kSmallPanel
  std::int64_t element = 2;        // bytes, of q, k and v
  std::int64_t shares = 1;         // warp groups that divide the columns of o among them
  std::int64_t pack = 1;           // heads that share a tile
  std::int64_t tables = 0;         // stages of a captured table
  std::int64_t table_pack = 1;     // heads of a tile whose rows of the table differ
  std::int64_t table_element = 2;  // bytes
  bool values_of_keys = false;     // one stage holds keys and values
  bool clears_values = false;      // that are past a length (attn/tails.cuh)
  double rate = 1;            // scores in the same time, compared with other tiles of this depth
  std::int64_t cell = kCell;  // the same of this tile, a multiple of it
  std::optional<Patch> patch{};
  TileUse use = TileUse::any;
  // Whether warps make products alone (attn/mma_forward.cuh), not warp groups.
  bool of_warps = false;
  std::int64_t strips = 1;    // of 16 rows that a warp has, then
  std::int64_t held = 0;      // of how many 16 columns it holds queries, at least
  std::int64_t resident = 1;  // blocks of threads of a multiprocessor, then
  // Whether blocks of threads walk items then, and hold so many columns of a table
  // (attn/mma_walking.cuh).
  bool walks = false;
  std::int64_t held_columns = 0;
  // Warp groups that widen keys and values of 8 bits to `element` (attn/forward_widening.cuh), and
  // blocks that each of them holds; 0: keys and values have the type of queries.
  std::int64_t wideners = 0;
  bool token_scales = false;  // each key has its scales, then

  std::int64_t rows() const { return kGroup * groups; }
  std::int64_t rows_of_head() const { return rows() / pack; }
  std::int64_t table_bytes() const;  // of a stage
  // Columns of a table of f32 that a copy moves: adjacent rows begin in other banks.
  std::int64_t table_columns() const { return keys + 8; }
  std::int64_t handed() const;        // blocks that are handed over at a time
  std::int64_t handed_bytes() const;  // of a block, between warp groups that divide o
  std::int64_t share() const;         // columns of o of a warp group, if not the last
  std::int64_t threads() const {
    return of_warps ? 128 * groups / strips
                    : 128 * (groups * shares + std::max<std::int64_t>(wideners, 1));
  }
  std::int64_t warps() const { return 4 * groups * shares; }  // that compute
  std::int64_t cells_of(std::int64_t columns) const { return ceil_div(columns, cell); }
  // Columns of a panel of q and k, and of v; of 8 bits, keys of v.
  std::int64_t depth_panel() const;
  std::int64_t width_panel() const;
  std::int64_t shared_bytes() const;
  // Aligns shared memory: products of warp groups want whole patterns of a swizzle, others rows.
  std::int64_t alignment() const { return of_warps ? 128 : 1024; }
  // Queries of so many 16 columns stay in registers; with `of_warps`.
  std::int64_t held_queries() const;
};

// Tiles that fit the attention's head dimensions, which are at most kMostDepth and kMostWidth.
// `by_head`: masks differ by head, so that heads cannot share a tile. `table`: captured, to be
// copied too; tiles without room for it have no stage of it.
std::vector<Tile> tiles_for(const ir::Attention& attention, bool by_head,
                            const std::optional<Table>& table);
// Bytes of shared memory that a block of threads may have, so many of which share a
// multiprocessor. `most_shared`: what one may have alone.
std::int64_t room_of(std::int64_t resident, std::int64_t most_shared);

// The same of kernels of warps, for head dimensions up to kMostDepthOfWarps, within so many bytes
// of shared memory. They copy no table.
std::vector<Tile> tiles_of_warps(const ir::Attention& attention, bool by_head,
                                 std::int64_t most_shared);

// What rates of tiles are multiplied by where threads load rows of q, k or v and wait for them,
// instead of cp.async (attn/mma_rows.cuh). Not measured.
double rate_of_copies(const ir::Attention& attention);

// The same of those that walk items, of attentions with as many heads of keys as of queries. They
// hold the table, if there is one, whose elements have 16 bits.
std::vector<Tile> walking_tiles(const ir::Attention& attention, const std::optional<Table>& table,
                                std::int64_t most_shared);

// The most heads of a group that share a tile: those whose rows fill it.
std::int64_t pack_of(const Tile& tile, std::int64_t group, std::int64_t rows);
// Whether shared memory has room for what clears values past a length (attn/tails.cuh).
bool clears_values(const ir::Attention& attention);

}  // namespace attn::engines::native
