// Integer expressions that are affine in the row and the column number.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/attention.h"

namespace attn::passes {

// row * Row + column * Column + constant
struct Affine {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t constant = 0;

  bool operator==(const Affine&) const = default;
};

// Nothing when the expression depends on anything else, or in any other way.
std::optional<Affine> affine_of(const ir::Dag& dag, ir::ExprId id);

}  // namespace attn::passes
