// Attention graphs for tests, with the operations that cuDNN's fused engines match.
#pragma once

#include <cstdint>

#include "runtime/graph/backend_graph.h"

namespace attn::testing {

struct AttentionShape {
  std::int64_t batch = 2;
  std::int64_t heads_q = 8;
  std::int64_t heads_kv = 8;
  std::int64_t seq_q = 1024;
  std::int64_t seq_kv = 1024;
  std::int64_t head_dim = 128;
  DType dtype = DType::bf16;
};

enum class Mask : std::uint8_t {
  none,
  causal,          // GEN_INDEX pair, CMP_GE, BINARY_SELECT
  constant_first,  // causal with the -inf scalar as the select's first input: crashes cuDNN 9.19
  u8_tensor,       // a UINT8 device tensor as the select's predicate: crashes cuDNN 9.19
};

// scores = q x k^T * scale, mask, softmax with stats, o = p x v. Uids: q 1, k 2, v 3, scale 4, -inf
// 5, o 6, stats 7, mask 8; values from 100. Node i is at line i + 1, column 3 of a fictitious
// source.
graph::BackendGraph attention_graph(const AttentionShape& shape, Mask mask);

}  // namespace attn::testing
