// Which integers an expression can be.
#pragma once

#include <cstdint>

#include "compiler/ir/attention.h"

namespace attn::passes {

// Inclusive; the widest is all 32-bit integers.
struct Range {
  std::int64_t low = INT32_MIN;
  std::int64_t high = INT32_MAX;

  bool operator==(const Range&) const = default;
};

// Sound, not tight: every value the integer expression takes lies inside. An open dimension is only
// known to be positive, a captured element or a param only to be a 32-bit integer.
Range range_of(const ir::Attention& attention, ir::ExprId id);

}  // namespace attn::passes
