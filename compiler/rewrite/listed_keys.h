// An attention over gathered keys, as one over the lists of its rows.
#pragma once

#include <string>

#include "compiler/ir/attention.h"

namespace attn::rewrite {

// The attention whose columns are the numbers of keys in the lists: Skv is as many as a list has,
// what was the column is the element of the list, and masks hide what is no key, what is past the
// length of the batch and, if `counts`, past the count of the row. It has no gather and no lengths
// of keys, and v is no part of k; dims in its expressions are numbers. k and v are not those of the
// attention any more: what reads them is the caller's. Sizes must be bound.
ir::Attention with_keys_listed(const ir::Attention& attention, bool counts);

// What checks of bound values evaluate: the attention of the lists, whose score also reads an
// element of a computed tensor `kv` at each position that counts and is not -1, and one of `listed`
// at each count. These loads are out of range exactly where a list or a count is wrong. Masks,
// which hide nothing of that, guard the score alone.
ir::Attention with_positions_read(const ir::Attention& attention);

// The attention with each row as a batch of its own, B Sq in all: batch b * Sq + row, of which
// expressions know what b and row were. Masks are parts of the score, which is -inf where one hides
// it. Sizes must be bound.
ir::Attention with_rows_as_batches(const ir::Attention& attention);

}  // namespace attn::rewrite
