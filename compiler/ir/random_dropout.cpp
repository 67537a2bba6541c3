#include "compiler/ir/random_dropout.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace attn::ir {
namespace {

// Whether it is the column plus a multiple of 32, or a choice of these by multiples of 32.
bool keeps_32(const Dag& dag, ExprId id) {
  const Node& node = dag[id];
  const auto is_multiple = [&](ExprId number) {
    return dag[number].is(Op::const_int_) && dag.integer_of(number) % kDrawnKeys == 0;
  };
  if (node.is(Op::column_)) return true;
  if (node.is(Op::add_))
    return dag[node.operands[0]].is(Op::column_) && is_multiple(node.operands[1]);
  if (!node.is(Op::select_)) return false;
  const Node& condition = dag[node.operands[0]];
  return condition.is(Op::lt_) && dag[condition.operands[0]].is(Op::column_) &&
         is_multiple(condition.operands[1]) && keeps_32(dag, node.operands[1]) &&
         keeps_32(dag, node.operands[2]);
}

// The number of a single key is a constant.
bool is_single_key(const Attention& attention) {
  const Dag& dag = attention.dag;
  const ExprId column = attention.dropout->origin->column;
  return attention.dims[Dim::Skv] == 1 && dag[column].is(Op::const_int_) &&
         dag.integer_of(column) % kDrawnKeys == 0;
}

bool reads_a_tensor(const Dag& dag, ExprId id) {
  const ExprId roots[] = {id};
  const std::vector<ExprId> all = reachable(dag, roots);
  return std::ranges::any_of(all, [&](ExprId each) { return dag[each].is(Op::load_); });
}

}  // namespace

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
                "`dropout p, keep[b, h, q_idx, kv_idx]`"}};
}

Status check_draws_by_32(const Attention& attention) {
  if (!attention.is_random() || !attention.dropout->origin) return {};
  const Dropout::Origin& origin = *attention.dropout->origin;
  const auto refused = [](const char* why) {
    return Error{ErrorCode::unsupported,
                 why,
                 {"`shard heads`, other sizes or fewer ranks may have other parts; `dropout p, "
                  "keep[..]` takes the elements to keep from a tensor"}};
  };
  if (!keeps_32(attention.dag, origin.column) && !is_single_key(attention))
    return refused(
        "random dropout draws numbers for 32 keys at a time, which are not 32 of the "
        "whole attention in this part");
  if (reads_a_tensor(attention.dag, origin.row))
    return refused(
        "random dropout draws numbers of rows in few pieces, not of rows that a tensor "
        "numbers as in this part");
  return {};
}

}  // namespace attn::ir
