// Ranges of real operations in f32, as kernels compute them: values that exceed it are infinite.
#pragma once

#include <limits>

#include "compiler/ir/attention.h"
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

// What the score itself may be.
enum class Score : std::uint8_t { finite, infinite };

// True if the real expression is finite wherever the score is finite (or also where the product of
// q and k is infinite, which the scale makes a score of), ignoring sums and products that overflow
// f32. Sound, not tight. Tensors and params may hold anything.
bool is_finite(const ir::Attention& attention, ir::ExprId id, Score score = Score::finite);

}  // namespace attn::masks
