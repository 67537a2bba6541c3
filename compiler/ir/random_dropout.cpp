#include "compiler/ir/random_dropout.h"

#include <fmt/format.h>

namespace attn::ir {

Status check_random_dropout(const Attention& attention) {
  if (!attention.is_random()) return {};
  constexpr double kHalf = 0.5 / static_cast<double>(Dropout::kRandomNumbers);
  const double p = attention.dropout->probability;
  if (p == 0 || (p >= kHalf && p < 1 - kHalf)) return {};
  return Error{ErrorCode::unsupported,
               fmt::format("the dropout probability {} is {} for random numbers of 15 bits, which "
                           "attnc draws",
                           p, p < kHalf ? 0 : 1),
               {"0 and 0.000016 to 0.99998 work, and so does a mask of the weights to keep: "
                "`dropout p, keep[b, h, q_idx, kv_idx]`"},
               {}};
}

}  // namespace attn::ir
