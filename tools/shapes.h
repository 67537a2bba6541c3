// The sizes at which a spec is verified.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/support/source.h"
#include "tools/command.h"

namespace attn::tools {

enum class ShapeSet : std::uint8_t {
  scaled,  // the spec's sizes scaled down
  all,     // that, odd ones (B 2, Sq 129, Skv 777), and one row (Sq 1, Skv 777)
};

inline constexpr std::int64_t kLongestScaled = 512;  // rows or columns

struct Shape {
  std::string name;         // "scaled", "odd", "one row"
  sema::Bindings bindings;  // the caller's and what the shape adds
};

// Scaled down means: B at most 2, at most 8 query heads in the same ratio to the key heads (one
// group where a group has more), Sq and Skv by a common factor that makes the larger at most
// `longest` (odd ones in proportion) and the smaller at least 1, head dimensions as they are; sizes
// that are open become B 2, Hq 4, Hkv 2, Sq 256, Skv 256, D 64. A parameter of the spec that lies
// between the new Skv and the old one (a window of 4096 in 8192) shrinks in proportion. Where q, k
// and v are parts of one tensor (packed_qkv), Skv is Sq. What `given` binds stays. `attention` is
// the spec with `given` bound.
std::vector<Shape> shapes_of(const support::Source& source, const ir::Attention& attention,
                             const sema::Bindings& given, ShapeSet set,
                             std::int64_t longest = kLongestScaled);

}  // namespace attn::tools
