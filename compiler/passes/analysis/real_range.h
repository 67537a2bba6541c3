// Which reals an operation can give, as f32 has them: kernels compute in f32, so what exceeds it is
// infinite.
#pragma once

#include <limits>

#include "compiler/ir/dag.h"
#include "compiler/passes/analysis/range.h"

namespace attn::passes {

// Numbers and infinities from low to high, none of them where low > high; NaN too where `nan`.
struct RealRange {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

// Of the operation `op` on reals; `y` is not looked at when it has one operand. Sound, not tight: a
// single number where the operands are single numbers, but for operations that no case is made of.
RealRange real_range(ir::Op op, const RealRange& x, const RealRange& y);

RealRange joined(const RealRange& x, const RealRange& y);  // either

// Of the comparison `op`, as booleans have it (range.h).
Range compared(ir::Op op, const RealRange& x, const RealRange& y);

}  // namespace attn::passes
