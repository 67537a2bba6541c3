// Floors of integer quotients, computed with additions instead of rounding instructions.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::engines {

// x / divisor, where x is a real that holds an integer of magnitude below rewrite::kWholeInReals.
struct WholeQuotient {
  ir::ExprId x = 0;
  double divisor = 1;  // an integer, positive
};

// The quotient whose floor is floor(id), if `id` is x * (1 / c) for a power of two c, or (x + 0.5)
// * (1 / c) for any c (rewrite/reals.h), and the bound of x is known.
std::optional<WholeQuotient> whole_quotient(const ir::Attention& attention, ir::ExprId id);

// floor(x / c) is the integer nearest to x * (1 / c) + nearest_shift(c), which is at least 0.5 / c
// from any tie, while f32 is off by less than 0.4 / c. Adding kWholes to a float rounds it to the
// nearest integer. GPUs add four times as fast as they round.
inline constexpr double kWholes = 12582912;  // 1.5 * 2^23
constexpr double nearest_shift(double divisor) { return 0.5 / divisor - 0.5; }

}  // namespace attn::engines
