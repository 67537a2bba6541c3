// Ranges of real operations in f32, as kernels compute them: values that exceed it are infinite.
#pragma once

#include <limits>

#include "compiler/ir/dag.h"
#include "compiler/masks/range.h"

namespace attn::masks {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Numbers and infinities from low to high, none if low > high; also NaN if `nan`. A range with 0
// has zeros of both signs, whose quotients differ.
struct RealRange {
  double low = -kInfinity;
  double high = kInfinity;
  bool nan = true;

  static RealRange of(double value);  // rounded to f32
  static RealRange only_nan() { return {kInfinity, -kInfinity, true}; }
  bool is_none() const { return low > high; }
  bool is_point() const { return low == high && !nan; }
  bool holds(double value) const { return low <= value && value <= high; }
  bool operator==(const RealRange&) const = default;
};

// The range of `op`; `y` is ignored if it has one operand. Sound, not tight: a single number if the
// operands are single numbers, except for operations without a rule and for functions of 0 that
// depend on its sign.
RealRange real_range(ir::Op op, const RealRange& x, const RealRange& y);

RealRange joined(const RealRange& x, const RealRange& y);  // of either

// The range of the comparison `op`, as for booleans in range.h.
Range compared(ir::Op op, const RealRange& x, const RealRange& y);

}  // namespace attn::masks
