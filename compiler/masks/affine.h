// Integer expressions that are affine in the row, the column and the lengths of the batch.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/attention.h"

namespace attn::masks {

// row * Row + column * Column + constant + length_q * lengths_q[b] + length_kv * lengths_kv[b]
struct Affine {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t constant = 0;
  std::int64_t length_q{};
  std::int64_t length_kv{};

  bool operator==(const Affine&) const = default;
};

// nullopt if the expression is not affine in these, or if it or a part of it could leave 32 bits
// for some row and column (integers of a spec wrap). An open dimension may be as large as 32 bits
// allow.
std::optional<Affine> affine_of(const ir::Attention& attention, ir::ExprId id);

}  // namespace attn::masks
