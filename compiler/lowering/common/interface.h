// The tensors that the caller of a program binds.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/attention.h"
#include "compiler/lowering/common/controls.h"
#include "runtime/plan/program.h"

namespace attn::lowering {

// Of all that an attention knows, those that are `used`: q, k, v, then captured tensors in the
// order of declaration, then what layouts and dropout are controlled by, then outputs.
std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used,
                                            const Controls& controls);

// Those of a backward: q, k and v, captured tensors that are used, controls, what the forward made
// and do, then `gradients` in that order: "dq", "dk", "dv" or "d_" and a captured tensor's name.
std::vector<plan::TensorInfo> backward_tensors(const ir::Attention& attention,
                                               const std::set<std::string>& used,
                                               const Controls& controls,
                                               const std::vector<std::string>& gradients);

// What gradient::wanted_gradients are called, in its order.
std::vector<std::string> gradient_names(const ir::Attention& attention);

// The names of the tensors and params that a step is bound to.
std::set<std::string> names_of(const plan::CudnnStep& step);

}  // namespace attn::lowering
