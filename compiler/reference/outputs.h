// The outputs of the forward, row by row. Internal to compiler/reference.
#pragma once

#include "compiler/reference/evaluate.h"
#include "compiler/reference/row_epilogue.h"
#include "compiler/reference/row_softmax.h"

namespace attn::reference {

// Zeros of the outputs' dims, f64 when unrounded, else f32.
Outputs make_outputs(const ir::Attention& attention, bool unrounded);

// Writes the elements of row `index`, the last one that `row` ran. `epilogue`: of the problem, null
// without one. Errors: those of RowEpilogue::run.
Status write_row(const Problem& problem, const RowSoftmax& row, RowEpilogue* epilogue,
                 std::int64_t index, Outputs& outputs);

// Call it once, after all rows: scales and rounds o, and reduces amax_s and amax_o, which have had
// a value for each row.
void finish_outputs(const Problem& problem, Outputs& outputs);

}  // namespace attn::reference
