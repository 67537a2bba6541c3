// What the kernels of a program compute of the cells of a picture.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/engines/shared/coverage.h"
#include "compiler/masks_of_values/cells.h"
#include "runtime/ranks/intervals.h"

namespace attn::pictures {

struct ByKernel {
  static constexpr std::uint8_t kNone = 255;     // the cell is skipped
  static constexpr std::uint8_t kSeveral = 254;  // of a block: each computes some of its scores

  std::uint8_t kernel = kNone;  // which; of a visible score, the one that shows it
  bool masked = false;          // whether masks are evaluated in one of its blocks
  bool operator==(const ByKernel&) const = default;
};
inline constexpr std::size_t kMostKernels = 254;

struct Computed {
  std::vector<ByKernel> cells;  // of a BlockMap
  double scores = 0;            // that are computed, whether visible or not, by each kernel
  bool operator==(const Computed&) const = default;
};

// The blocks of the kernels, at most kMostKernels, in a batch and head, by the values of what masks
// read. Takes time in proportion to the blocks and cells. Requirements and errors: those of
// cells.h.
Result<Computed> computed_at(std::span<const engines::Coverage> kernels,
                             const reference::Bindings& values, const masks_of_values::Place& place,
                             const masks::BlockMap& map);

// One of the owners computes what is visible of these rows and columns.
struct Owned {
  std::uint8_t owner = 0;  // below kMostKernels
  ranks::Interval heads;   // of queries
  ranks::Intervals rows, columns;
};

// Owners, in place of kernels, of the cells of a head that are not hidden: the one that has more
// than half of what is visible of a cell; kSeveral if there is none. Parts of an owner follow each
// other.
Computed owned_at(std::span<const Owned> owned, const masks_of_values::Place& place,
                  const masks::BlockMap& map, const masks_of_values::CountVisible& visible);

}  // namespace attn::pictures
