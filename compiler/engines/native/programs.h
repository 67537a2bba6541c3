// The forward as one kernel that attnc generates, for compute capability 9.0 (attn/forward.cuh):
// text generated from the IR, with the lists of key blocks that masks show.
//
//   native.counter  i32 [1]: the number of tiles that were taken beyond the first of each block of
//                   threads, zeroed before each run. If keys are computed in parts, behind it: how
//                   many parts of its rows a warp has stored, [tiles, warps]; if the GPU makes the
//                   lists, last: how many blocks of threads are done with each, [lists]
//   native.parts    f32: what warps have of each part (StoredParts::store_part)
//
// Where lengths decide what a band shows, a kernel of the same step divides the work of a batch
// first (schedules.h).
//
// Where inputs decide what masks show, the kernel computes the blocks of a band (bands.h). Of other
// masks, a kernel of the same step makes the lists first (made_lists.h).
//
// With 8-bit floats a kernel of the same step transposes the values (quantized.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/shared/coverage.h"
#include "compiler/ir/attention.h"
#include "compiler/masks/axes.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// In debug builds, waits of kernels end after about a second. What prints makes the assembler
// serialize products and spill: such kernels are slow, but right.
#ifdef NDEBUG
inline constexpr bool kWatched = false;
#else
inline constexpr bool kWatched = true;
#endif

// Errors: unsupported for a GPU without the instructions, no keys, head dimensions that are not
// multiples of 8 or are above 576 (Dqk) or 512 (Dv), q, k and v that TMA cannot address, lists of
// blocks that are too long. Of 8-bit floats also: a backward, scales of blocks, and head dimensions
// that are not multiples of 16 or are above 256.
Status check_native(const ir::Attention& attention, const target::Context& context);

// Work of the kernel that makes lists of key blocks at every execute.
struct ListWork {
  double scores = 0;  // whose masks it looks at, at most, where intervals decide nothing
  double cells = 0;   // of all tiles, where they do
  double bytes = 0;   // that it and the kernel behind it move
};

// What a program computes, for a prediction of its time: with lengths, of those that are expected
// (engines/shared/lengths.h).
struct NativeWork {
  double scores = 0;      // that are computed, hidden ones of partial blocks included
  double masked = 0;      // of these, for which masks are evaluated
  double rate = 1;        // of the tile that was chosen, compared with the best of this depth
  double rows = 0;        // of a tile, of all heads that share it
  double queries = 0;     // of a tile
  double keys = 0;        // of a block
  double heads = 1;       // of which a tile computes each of its rows
  double products = 1;    // times those of a forward, for each score
  double width = 0;       // of q and v, in shared memory
  double tiles = 0;       // of queries, of all heads and batches
  double most = 0;        // scores of one tile
  double last = 0;        // the same of those of the last batch
  double splits = 1;      // in which the keys of a tile are computed
  double merged = 0;      // bytes that a warp merges of all parts of its rows
  double merging = 0;     // warps that merge
  bool of_warps = false;  // products are those of single warps
  bool is_short = false;  // of a backward of one launch, whose `moved` are all of its bytes
  double workers = 0;     // blocks of threads at the same time, of a backward
  double groups = 0;      // warp groups that compute the scores of a tile
  double copied = 0;      // bytes of keys and values that all tiles copy, as lines of the L2 cache
  double read = 0;        // of these, from memory: tiles that share keys copy them at a time
  double pieces = 0;      // in which keys and values in pages are copied by TMA
  double gathered = 0;    // rows of keys and values in pages that threads copy, one by one
  double launches = 1;
  double moved = 0;    // bytes, by other kernels
  double learned = 0;  // operations on each score that sum gradients of learned tensors
  std::optional<ListWork> lists{};
  bool scheduled = false;  // tiles are divided so that all blocks of threads have as much to do
  // Scores are an upper bound: inputs decide which are computed.
  bool at_most = false;
};

struct NativeProgram {
  plan::Program program;
  NativeWork work;
  std::vector<std::string> parts{};    // if it computes classes (engines/shared/partition.h): which
  std::optional<Coverage> coverage{};  // of a forward
};

// The programs of an attention, the best first: of the whole attention, or of its classes
// (classes.h), by the scores that are computed. Lists of blocks are made once for each tile. Not
// thread-safe.
class NativePrograms {
 public:
  // `mask_axes`: what the masks depend on.
  NativePrograms(ir::Attention attention, const masks::Axes& mask_axes,
                 const target::Context& context);
  ~NativePrograms();
  NativePrograms(const NativePrograms&) = delete;
  NativePrograms& operator=(const NativePrograms&) = delete;

  // The one after the `refused` best. `predicted` tells milliseconds of work, by which backwards
  // of one launch come before others, or behind them; without it they come before. Errors: those of
  // check_native, and of check_forward; unsupported when no tile is left.
  using Prediction = std::function<double(const NativeWork& work)>;
  Result<NativeProgram> make(std::size_t refused = 0, const Prediction& predicted = {});

 private:
  struct Forms;
  Result<NativeProgram> make_program(std::size_t refused, const Prediction& predicted);
  Result<NativeProgram> make_backward(std::size_t refused, const Prediction& predicted);
  Result<NativeProgram> make_inner_backward(const ir::Attention& attention, std::size_t refused,
                                            const Prediction& predicted);

  const target::Context context_;  // of the kernels (context_of_kernels)
  const bool for_rows_;            // whether it is another one than that of the target
  const ir::Attention attention_;  // with scales as these kernels have them
  const masks::Axes mask_axes_;
  std::unique_ptr<Forms> forms_;
  std::optional<bool> short_first_{};  // once it was asked
};

}  // namespace attn::engines
