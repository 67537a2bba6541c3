// Which weights random dropout keeps, as the device shows them: the reference has random numbers of
// its own.
#pragma once

#include <string>

#include "compiler/ir/attention.h"
#include "compiler/reference/evaluate.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"

namespace attn::tools {

// The name of the tensor that says what is kept.
inline constexpr const char* kKept = "kept";

// What the plan keeps with these inputs, bool [B,Hq,Sq,Skv]: o where v is 1 in a single row, one
// row after the other (Dv of them in a run). A weight that rounds to 0 counts as not kept: it makes
// no difference. Errors: those of run_on_device.
Result<io::HostTensor> kept_on_device(const plan::Plan& plan, const ir::Attention& attention,
                                      const reference::Inputs& inputs,
                                      const std::string& cudnn_folder);

// The attention and inputs with dropout by a tensor of what is kept instead of random numbers.
ir::Attention with_kept(const ir::Attention& attention);
reference::Inputs with_kept(reference::Inputs inputs, io::HostTensor kept);

}  // namespace attn::tools
