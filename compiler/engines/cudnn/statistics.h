// Row statistics: lse, max and sum_exp. cuDNN writes either lse alone or the results of softmax's
// two reductions; beside lse or a sink, it never writes a reduction. So if max or sum_exp is
// wanted, the graph stores both reductions and a kernel computes the outputs from them. That kernel
// also skips rows that cuDNN should not have computed (lengths.h).
#pragma once

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

}  // namespace attn::engines
