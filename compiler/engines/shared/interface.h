// The tensors and params that the caller of a program binds.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "compiler/engines/shared/controls.h"
#include "compiler/ir/attention.h"
#include "runtime/plan/program.h"

namespace attn::engines {

// The tensors of a forward: q, k, v, then captured tensors that are `used`, in order of
// declaration, then controls, then outputs.
std::vector<plan::TensorInfo> bound_tensors(const ir::Attention& attention,
                                            const std::set<std::string>& used,
                                            const Controls& controls);

// The tensors of a backward: q, k, v, captured tensors that are used, controls, the forward's o
// (with an epilogue: o_inner) and lse, do, dlse if it is read, then `gradients` in that order:
// "dq", "dk", "dv" or "d_" and a captured tensor's name.
std::vector<plan::TensorInfo> backward_tensors(const ir::Attention& attention,
                                               const std::set<std::string>& used,
                                               const Controls& controls,
                                               const std::vector<std::string>& gradients);

// The names of the gradients of gradient::wanted_gradients, in its order.
std::vector<std::string> gradient_names(const ir::Attention& attention);

// The params that are used, in order of declaration.
std::vector<plan::ParamInfo> bound_params(const ir::Attention& attention,
                                          const std::set<std::string>& used);

// Support for attentions without the output o. cuDNN's kernels always write it, so it becomes an
// internal tensor of the program, in the workspace.
//
// The attention with o added to its outputs, without gaps in memory.
ir::Attention with_o(ir::Attention attention);

// Makes the output `o` of a forward of with_o() internal, and removes the steps that only copy it.
void make_o_internal(plan::Program& program);

// For steps before and after those of a program.
//
// Makes a bound tensor an internal one, of this name in all steps. False if there is none.
bool make_internal(plan::Program& program, const std::string& name, const std::string& to);
// Adds the gradient of a learned tensor to what is bound.
void add_learned_gradient(const ir::Attention& attention, const std::string& learned,
                          plan::Program& program);
// Orders what is bound: q, k and v, others as they are, gradients as gradient_names, amax.
void order_tensors(const ir::Attention& attention, plan::Program& program);

}  // namespace attn::engines
