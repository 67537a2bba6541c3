// Rows of a cache whose columns have several types: `layout paged(page = 64, rows = fp8_ds_mla);`.
#pragma once

#include "compiler/ast/ast.h"
#include "compiler/diag/diagnostics.h"
#include "compiler/ir/attention.h"

namespace attn::sema {

// Reports what does not fit the format of rows that the layout of k, or of v, has: values that are
// no part of k, other columns, another type of queries. Call it when layouts, values, types and
// dims are set.
void check_row_format(const ast::Spec& spec, const ir::Attention& attention, diag::Sink& sink);

}  // namespace attn::sema
