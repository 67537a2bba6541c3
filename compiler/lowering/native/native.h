// The forward as one kernel of attnc's own, for compute capability 9.0 (attn/forward.cuh): text
// generated from the IR, with the lists of key blocks that masks show.
//
//   native.counter  i32 [1]: the number of tiles that were taken beyond the first of each block of
//                   threads, zeroed before each run. If keys are computed in parts, behind it: how
//                   many parts of its rows a warp has stored, [tiles, warps]
//   native.parts    f32: what warps have of each part (Consumer::store_part)
//
// Where inputs decide what masks show, kernels of the same step make the lists first
// (attn/key_lists.cuh):
//
//   native.cells    bytes [lists, tiles, cells]: what masks show of the rows of a tile and the keys
//                   of a cell
//   native.runs     i32 [lists, tiles, most, 2]: runs of blocks of keys
//   native.tiles    i32 [lists, tiles, 4]: where the runs of a tile are
//   native.sorted   the same, the longest first
//
// Where q, k or v are packed (thd), a kernel of the same step makes tensor maps of their sequences
// (attn/sequence_maps.cuh):
//
//   native.maps     i32 [tensors times batches, 32]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/passes/analysis/axes.h"
#include "compiler/planning/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// In debug builds, waits of kernels end after about a second. What prints makes the assembler
// serialize products and spill: such kernels are slow, but right.
#ifdef NDEBUG
inline constexpr bool kWatched = false;
#else
inline constexpr bool kWatched = true;
#endif

// Errors: unsupported for a GPU without the instructions, no keys, head dimensions that are not
// multiples of 8 or are above 576 (Dqk) or 512 (Dv), q, k and v that TMA cannot address, and lists
// of blocks that are too long.
Status check_native(const ir::Attention& attention, const planning::Context& context);

// Of the kernels that make lists of key blocks at every execute.
struct ListWork {
  double scores = 0;  // whose masks they look at, at most
  double bytes = 0;   // that they and the kernel behind them move
};

struct NativeProgram {
  plan::Program program;
  double scores = 0;  // that are computed, hidden ones of partial blocks included
  double rate = 1;    // of the tile that was chosen, compared with the best of this depth
  std::vector<std::string> parts{};  // if it computes classes (passes/strategy/partition.h): which
  std::optional<ListWork> lists{};

  double work() const { return scores / rate; }
};
// Of the whole attention, or of its classes (classes.h): what computes fewer scores. `mask_axes`:
// what the masks depend on. `refused`: how many of the best tiles not to take. Errors: those of
// check_native, and of check_forward; unsupported when no tile is left.
Result<NativeProgram> lower_native(const ir::Attention& attention, const passes::Axes& mask_axes,
                                   const planning::Context& context, std::size_t refused = 0);

}  // namespace attn::lowering
