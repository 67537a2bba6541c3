// Rewrites that never change the meaning of an attention.
//
// Every rule is exact: for every input the new expression has the value of the old one, NaN,
// infinities and the sign of zero included, with reals as doubles (`x ** 2.0`, which becomes
// `x * x`, may differ by the rounding of the library's pow). Only errors may be lost: an
// out-of-range gather or an integer division by zero whose value is not needed.
//
// Constants
//   - an operation on constants becomes its value, except an integer result that leaves 32 bits,
//     an integer division by 0 and a shift outside 0..31 (ir::fold)
//   - a dimension with a size becomes that size
// Integers: x+0, x-0, x*1, x//1 -> x;  x*0, x%1, x-x -> 0
// Reals:    x*1.0, x/1.0, x-0.0, x+(-0.0), x**1.0 -> x;  x**2.0 -> x*x. Not x+0.0, which turns
//           -0.0 into 0.0; not x*0.0 and x-x, which keep a NaN.
// Both:     -(-x) -> x;  abs(abs(x)), abs(-x) -> abs(x);  min(x,x), max(x,x) -> x;
//           min(x,inf), max(x,-inf) -> x
// floor and ceil of floor(x), ceil(x) or an integer converted to real -> their operand
// Comparisons
//   - of an integer with itself: its value (a real may be NaN: left)
//   - of two converted integers, or of one with a real constant: of the integers, the constant
//     rounded so that it separates the same integers (x < 2.5 -> x < 3, x <= 2.5 -> x <= 2)
//   - of a boolean converted to a number with a constant: the boolean, its negation or a constant
// Booleans
//   - and, or: constants absorb or vanish; x && x, x || x -> x
//   - not moves inwards: through not, and, or, select, and into comparisons of integers; into
//     == and != of reals; into the orderings of reals only if neither side can be NaN (a converted
//     integer, a constant, or abs, neg, floor, ceil, min, max, tanh, sigmoid, erf, exp, exp2,
//     select of such). Otherwise it stays, as it does on a load: !(x < y) is true when x is NaN,
//     x >= y is not.
//   - select: a constant condition chooses; equal branches are the value; select(!c, x, y) ->
//     select(c, y, x); with a constant boolean branch it becomes and / or
//   - select(c, x*y, x*z) -> x * select(c, y, z): choosing between two scores is slow on a GPU
//   - to_real(to_int(c)) -> to_real(c)
// Masks
//   - an AND becomes its conjuncts, one mask each, in order; `true` and duplicates are dropped
//   - a mask that is `false` stays, alone
//   - a score of the form select(c, x, -inf), or select(c, -inf, x), becomes x with the mask c, or
//     !c, after the others; not when c depends on the score
#pragma once

#include "compiler/ir/attention.h"

namespace attn::rewrite {

// The attention must be valid (ir::verify); the result is too. Idempotent.
ir::Attention simplify(const ir::Attention& attention);

}  // namespace attn::rewrite
