// A captured tensor, indexed directly, as an operand that broadcasts over the scores.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "runtime/base/status.h"

namespace attn::lowering {

struct CapturedView {
  DType dtype;  // as declared
  Dims4 dims;   // 1 in the axes that no index names, but see below
  Dims4 strides;
};

// The view that `load` (an ir::Op::load_) reads. cuDNN 9.19 computes wrong values, in silence, with
// an operand that varies with the batch but neither with rows nor with columns; such a tensor is
// read again for each row of the scores, at stride 0, which it computes rightly.
//
// Errors: unsupported, with the place, for an index that is not simply b, h, the row or kv_idx, or
// names one twice; for element types that cuDNN cannot read; for tensors whose columns are not
// adjacent in memory beside rows or where there is a single row, which its kernels fail on; and for
// those that vary with batch and head alone where there is a single row; for tensors that have
// fewer elements than the dimension that indexes them, of which only some are read.
Result<CapturedView> captured_view(const ir::Attention& attention, ir::ExprId load);

// The same, but what varies with columns and not with rows is read again for each row, at stride 0:
// cuDNN's backward engine computes wrong values with a vector over the columns (9.19, sm_90).
CapturedView read_by_rows(CapturedView view, const Dims4& scores);

}  // namespace attn::lowering
