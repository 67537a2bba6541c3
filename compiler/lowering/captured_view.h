// A captured tensor, indexed directly, as an operand that broadcasts over the scores.
#pragma once

#include "compiler/ir/attention.h"
#include "compiler/lowering/graph_builder.h"
#include "runtime/base/status.h"

namespace attn::lowering {

struct CapturedView {
  DType dtype;  // as declared
  Dims4 dims;   // 1 in the axes that no index names
  Dims4 strides;
};

// The view that `load` (an ir::Op::load_) reads. Errors: unsupported, with the place, for an index
// that is not simply b, h, the row or kv_idx, or names one twice; for element types that cuDNN
// cannot read; and for the shapes it reads wrongly in silence or crashes on (cuDNN 9.19):
// operands that vary with the batch but neither with rows nor with columns, and tensors whose
// columns are not adjacent in memory. invalid_argument when an extent is smaller than the dimension
// that indexes it.
Result<CapturedView> captured_view(const ir::Attention& attention, ir::ExprId load);

}  // namespace attn::lowering
