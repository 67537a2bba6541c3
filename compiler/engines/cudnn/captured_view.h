// A directly indexed captured tensor as an operand that broadcasts over the scores.
#pragma once

#include <vector>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "compiler/rewrite/hoist.h"
#include "compiler/target/context.h"
#include "runtime/base/status.h"

namespace attn::engines {

struct CapturedView {
  DType dtype;  // as declared
  Dims4 dims;   // 1 in the axes that no index names, but see below
  Dims4 strides;
};

// The view that `load` (an ir::Op::load_) reads. A tensor that varies with the batch but with
// neither rows nor columns is repeated for each row at stride 0: cuDNN 9.19 silently computes wrong
// values otherwise.
//
// Errors: unsupported, with the position, for
//   - an index other than b, h, the row and kv_idx, or one of these twice
//   - element types that cuDNN cannot read
//   - columns that are not contiguous, beside rows or with a single row: cuDNN's kernels fail
//   - tensors that vary with batch and head alone, with a single row
//   - tensors smaller than the dimension that indexes them
Result<CapturedView> captured_view(const ir::Attention& attention, ir::ExprId load);

// The same view, except that values that vary with columns and not with rows are repeated for each
// row at stride 0: cuDNN's backward engine computes wrong values with a vector over columns (9.19,
// sm_90).
CapturedView read_by_rows(CapturedView view, const Dims4& scores);

// `extra` as in rewrite::HoistOptions: the derivative of a backward. Without `vectors` what reads a
// tensor over the rows becomes a table. Errors: those of rewrite::hoist.
Result<rewrite::Hoisted> hoisted(const ir::Attention& attention, std::vector<ir::ExprId> extra,
                                 const target::Context& context, bool vectors = true);

}  // namespace attn::engines
