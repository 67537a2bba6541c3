// What is known of each row beside o: lse, max and sum_exp. cuDNN writes either lse alone, or the
// results of softmax's two reductions (lse together with one of them, or a sink, and they are never
// written). So where max or sum_exp is wanted the graph stores both, and a kernel makes of them
// what is wanted. It also leaves out rows that cuDNN should not have computed (lengths.h).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/cudnn/graph_builder.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Whether the graph stores the reductions' results.
bool stores_reductions(const ir::Attention& attention);

// What the graph stores them and lse in, f32 [B,Hq,Sq,1]: the output of that name, or an internal
// tensor where the kernel makes the output.
Uid stored_max(const ir::Attention& attention, GraphBuilder& builder);
Uid stored_sum(const ir::Attention& attention, GraphBuilder& builder);
Uid stored_lse(const ir::Attention& attention, GraphBuilder& builder);

struct Statistics {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> steps;  // after the graph
};
Statistics statistics(const ir::Attention& attention);

}  // namespace attn::lowering
