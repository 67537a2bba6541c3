// Padding written as a mask that compares an index with a length of each batch.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"
#include "compiler/target/context.h"

namespace attn::masks {

struct Padding {
  // The attention with lengths_q or lengths_kv in place of the masks that they replace.
  ir::Attention attention;
  // The lengths, 0 .. Sq and 0 .. Skv: integer expressions of the batch alone, in attention.dag.
  std::optional<ir::ExprId> rows{}, columns{};
};

// Replaces masks kv_idx < e (or <=, >, >=, or kv_idx + c) by key lengths, where e varies with the
// batch alone, or not at all without being a constant; and masks of q_idx, which bottom-right
// alignment may shift, by row lengths. Several of one side become their minimum. Shows and computes
// the same: lse of a row past the length is -inf either way, except with a sink, where rows keep
// their masks.
//
// nullopt for open dimensions, without such masks, and if they are only on a side that has lengths
// already. An e that reads lengths does not count.
std::optional<Padding> padding(const ir::Attention& attention, const target::Context& context);

}  // namespace attn::masks
