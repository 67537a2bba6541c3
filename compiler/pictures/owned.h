// Who computes the cells of a picture, where an attention is divided among several.
#pragma once

#include <cstdint>
#include <span>

#include "compiler/pictures/computed.h"
#include "runtime/ranks/intervals.h"

namespace attn::pictures {

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
