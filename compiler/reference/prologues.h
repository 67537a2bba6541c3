// Prologues of q and k (ir::Prologue): an attention with them is one of what they make, and its
// gradients go on from those of what they make.
#pragma once

#include <string>
#include <vector>

#include "compiler/reference/gradients.h"

namespace attn::reference {

// The same attention without prologues, ir::with_prologues_given, and its inputs.
struct GivenPrologues {
  ir::Attention attention;
  Inputs inputs;
};

// Errors: those of bind(); binding if an element has no value.
Result<GivenPrologues> with_prologues(const ir::Attention& attention, const Inputs& inputs,
                                      const Options& options);

// gradients() of an attention with prologues. Errors: the same.
Result<Gradients> gradients_through_prologues(const ir::Attention& attention, const Inputs& inputs,
                                              const io::HostTensor& d_o,
                                              const std::vector<std::string>& names,
                                              const Options& options);

}  // namespace attn::reference
