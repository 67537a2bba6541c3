// Sizes for verifying a spec.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/support/source.h"
#include "tools/command.h"

namespace attn::tools {

enum class ShapeSet : std::uint8_t {
  own,     // the spec's sizes
  scaled,  // scaled down
  all,     // scaled, odd sizes (B 2, Sq 129, Skv 777) and one row (Sq 1, Skv 777)
};

inline constexpr std::int64_t kLongestScaled = 512;  // rows or columns

struct Shape {
  std::string name;         // "own", "scaled", "odd", "one row"
  sema::Bindings bindings;  // the caller's and those of the shape
};

// Own sizes: unbound ones become those of scaled sizes.
//
// Scaled sizes: B is at most 2; there are at most 8 query heads, in the same ratio to the key heads
// (one group if a group has more); Sq and Skv are scaled by a common factor that makes the larger
// at most `longest` (odd sizes in proportion) and the smaller at least 1; head dimensions are
// unchanged. Unbound sizes become B 2, Hq 4, Hkv 2, Sq 256, Skv 256, D 64. A parameter of the spec
// between the new and the old Skv (a window of 4096 in 8192) is scaled in proportion. With
// packed_qkv (q, k and v in one tensor), Skv is Sq. Bindings in `given` are kept. `attention` is
// the spec with `given` bound.
std::vector<Shape> shapes_of(const support::Source& source, const ir::Attention& attention,
                             const sema::Bindings& given, ShapeSet set,
                             std::int64_t longest = kLongestScaled);

}  // namespace attn::tools
