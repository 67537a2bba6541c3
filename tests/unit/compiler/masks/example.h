// Small attentions for the tests of this directory.
#pragma once

#include "compiler/ir/attention.h"

namespace attn::masks::testing {

// B 2, Hq 4, Hkv 2, D 8; no mask, the score unmodified.
inline ir::Attention example(std::int64_t rows, std::int64_t columns) {
  ir::Attention attention;
  attention.name = "example";
  const std::int64_t sizes[] = {2, 4, 2, rows, columns, 8, 8};
  for (std::size_t i = 0; i < ir::kDims.size(); ++i) attention.dims.set(ir::kDims[i], sizes[i]);
  for (const char* name : {"q", "k", "v", "o"}) attention.layouts[name] = ir::Layout{};
  attention.scale = attention.dag.real(0.5);
  attention.score = attention.dag.leaf(ir::Op::score_);
  return attention;
}

}  // namespace attn::masks::testing
