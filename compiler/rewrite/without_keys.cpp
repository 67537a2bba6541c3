#include "compiler/rewrite/without_keys.h"

namespace attn::rewrite {

ir::Attention without_keys(const ir::Attention& attention) {
  ir::Attention result = attention;
  if (attention.dims.get(ir::Dim::Skv) != 0) return result;
  result.score = result.dag.leaf(ir::Op::score_);
  result.masks.clear();
  result.dropout.reset();
  return result;
}

}  // namespace attn::rewrite
