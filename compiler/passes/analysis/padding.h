// Masks that hide what is behind a length of each batch: padding, written as a comparison.
#pragma once

#include <optional>

#include "compiler/ir/attention.h"

namespace attn::passes {

struct Padding {
  // With lengths_q or lengths_kv, without the masks that said the same.
  ir::Attention attention;
  // What the lengths are, 0 .. Sq and 0 .. Skv: integers of the batch alone, in attention.dag.
  std::optional<ir::ExprId> rows{}, columns{};
};

// Of masks kv_idx < e, or with <=, > or >= the same, also of kv_idx + c, where e varies with the
// batch alone (or not at all, but is not known), as lengths of the keys; of q_idx, which may be
// shifted by bottom-right alignment, as lengths of the rows. Several of one side become their
// least. Shows and computes the same: lse of a row behind the length is -inf either way, unless
// there is a sink, with which rows keep their masks.
//
// Nothing where there are no such masks but on a side that has lengths already, and for open
// dimensions. An e that reads lengths is none.
std::optional<Padding> padding(const ir::Attention& attention);

}  // namespace attn::passes
