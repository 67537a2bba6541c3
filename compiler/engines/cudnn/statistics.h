// Row statistics: lse, max and sum_exp. cuDNN writes either lse alone or the results of softmax's
// two reductions; beside lse or a sink, it never writes a reduction. So if max or sum_exp is
// wanted, the graph stores both reductions and a kernel computes the outputs from them. That kernel
// also skips rows that cuDNN should not have computed (lengths.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/shared/graph_builder.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// Whether the graph stores the reductions' results.
bool stores_reductions(const ir::Attention& attention);

// The graph tensors of these and lse, f32 [B,Hq,Sq,1]: the output of that name, or an internal
// tensor if the kernel writes the output.
Uid stored_max(const ir::Attention& attention, GraphBuilder& builder);
Uid stored_sum(const ir::Attention& attention, GraphBuilder& builder);
Uid stored_lse(const ir::Attention& attention, GraphBuilder& builder);

struct Statistics {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> steps;  // after the graph
};
Statistics statistics(const ir::Attention& attention);

// The softmax in forms that cuDNN's fused engines match, and the stored statistics:
// p = exp(score - max) / (sum(exp(score - max)) + exp(sink - max)). With a sink (f32 [1,Hq,1,1]),
// max is the larger of it and the largest score. The weights have type `dtype`: f32, or the
// attention's if only the product with v reads them.
Value softmax(const ir::Attention& attention, GraphBuilder& builder, Value score,
              std::optional<Uid> sink, DType dtype);

}  // namespace attn::engines
