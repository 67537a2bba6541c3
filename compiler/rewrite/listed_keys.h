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

// The same with counts, and with the element at each listed position of a computed tensor `name`,
// which has one for each key, added to the score: a load that is out of range exactly where what is
// listed is neither -1 nor a key.
ir::Attention with_positions_read(const ir::Attention& attention, const std::string& name);

// The attention with each row as a batch of its own, B Sq in all: batch b * Sq + row, of which
// expressions know what b and row were. Masks are parts of the score, which is -inf where one hides
// it. Sizes must be bound.
ir::Attention with_rows_as_batches(const ir::Attention& attention);

}  // namespace attn::rewrite
