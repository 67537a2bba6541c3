// Finds which weights random dropout keeps on the device, where cuDNN's random numbers differ from
// those of the reference.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::tools {

// Name of the tensor of kept weights.
inline constexpr const char* kKept = "kept";

// Whether the plan has random dropout by cuDNN's numbers. attnc's own kernels have the reference's.
bool has_unknown_numbers(const plan::Plan& plan, const ir::Attention& attention);

// The weights that the plan keeps with these inputs, bool [B,Hq,Sq,Skv]. Found by running the plan
// with v that is 1 in a single row, for Dv rows at a time. A weight that rounds to 0 counts as not
// kept: it makes no difference. Errors: those of run_on_device.
Result<io::HostTensor> kept_on_device(const plan::Plan& plan, const ir::Attention& attention,
                                      const reference::Inputs& inputs,
                                      const std::string& cudnn_folder);

// The attention and inputs with dropout by the tensor `kept` instead of random numbers.
ir::Attention with_kept(const ir::Attention& attention);
reference::Inputs with_kept(reference::Inputs inputs, io::HostTensor kept);

}  // namespace attn::tools
