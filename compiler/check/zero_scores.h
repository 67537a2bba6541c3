// Score clauses that set scores to 0 where a mask is likely meant: a key whose score is 0 keeps a
// weight.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::check {

// What a score clause shows: the keys for which `condition` is `shows`. Other scores become 0.
struct Shown {
  ir::ExprId condition = 0;
  bool shows = true;
  bool unchanged = false;  // whether the shown scores are those before the clause
};

// Scores that a clause shows which makes `after` of the score `before`, as `where(q_idx >= kv_idx,
// score, 0)` and `score * (q_idx >= kv_idx)` do. nullopt if it does no such thing; if the condition
// depends on the score or not on the key; and if one key alone gets 0, which some attentions mean.
std::optional<Shown> shown_by_zeros(const ir::Attention& attention, ir::ExprId before,
                                    ir::ExprId after);

}  // namespace attn::check
