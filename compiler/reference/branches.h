// Attentions with branches, from those of the branches and the one that captures what they make.
// Internal to compiler/reference.
#pragma once

#include "compiler/reference/gradients.h"

namespace attn::reference {

Result<Outputs> evaluate_branches(const ir::Attention& attention, const Inputs& inputs,
                                  const Options& options);

Result<Gradients> gradients_of_branches(const ir::Attention& attention, const Inputs& inputs,
                                        const io::HostTensor& d_o,
                                        const std::vector<std::string>& names,
                                        const Options& options);

}  // namespace attn::reference
