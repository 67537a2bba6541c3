// sum_exp beside a sink: cuDNN's sum has the sink in it, and counts from the larger of it and the
// largest score, so that what the language means is made of lse, max and the sink afterwards.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Whether sum_exp is made afterwards. Then the graph stores lse and max whether the attention wants
// them or not: as tensors of these names.
bool has_late_sum(const ir::Attention& attention);
std::string lse_name(const ir::Attention& attention);
std::string max_name(const ir::Attention& attention);

struct LateSum {
  std::vector<plan::TensorInfo> internals;
  std::vector<plan::DeriveStep> steps;
};
LateSum late_sum(const ir::Attention& attention);

}  // namespace attn::lowering
